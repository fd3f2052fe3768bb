/** The calculation as it stands on paper: limelight.worked.by_hand with its default of carrying rounded weights. */
import { mix, type Trace, type Vector } from "./attention";

export interface ByHand {
  readonly raw: Vector;
  readonly scaled: Vector;
  readonly weights: Vector;
  /** Mixed from the weights as rounded. */
  readonly output: Vector;
}

/** To that many digits after the point, halves away from zero, as taught at school. */
export function rounded(value: number, digits = 2): number {
  const unit = 10 ** digits;
  // The nudge makes 1.005, stored as 1.00499…, the half that is written.
  return (Math.sign(value) * Math.floor(Math.abs(value) * unit + 0.5 + 1e-9)) / unit;
}

/** One row of a trace with every number rounded. */
export function byHand(done: Trace, row = 0, digits = 2): ByHand {
  const round = (values: Vector): number[] => values.map((x) => rounded(x, digits));
  const weights = round(done.weights[row]!);
  const mixed = done.value ? mix(weights, done.allowed[row]!, done.value) : [];
  return { raw: round(done.raw[row]!), scaled: round(done.scaled[row]!), weights, output: round(mixed) };
}
