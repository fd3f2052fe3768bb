/** The figures of a head, which end of each is of concern, and the colours that follow. */
import type { Figure, Real } from "./api";

export interface FigureKind<Name extends string = Figure> {
  readonly name: Name;
  readonly title: string;
  readonly meaning: string;
  /** Which end is of concern. */
  readonly worse: "high" | "low";
  /** The scale where it is fixed; else it is taken from the numbers. */
  readonly scale: readonly [number, number] | null;
}

export const FIGURES: readonly FigureKind[] = [
  { name: "saturated", title: "Saturated rows", meaning: "share of rows whose largest weight is at least 0.95", worse: "high", scale: [0, 1] },
  { name: "max_prob", title: "Largest weight", meaning: "mean of each row’s largest weight", worse: "high", scale: [0, 1] },
  { name: "peaked", title: "Peaked rows", meaning: "share of rows whose largest weight is from 0.80 to 0.95", worse: "high", scale: [0, 1] },
  { name: "max_logit", title: "Largest logit", meaning: "the largest logit of any row", worse: "high", scale: null },
  { name: "entropy", title: "Entropy", meaning: "mean entropy of the rows, in nats", worse: "low", scale: null },
  { name: "spread", title: "Spread", meaning: "entropy as a share of the most it could be", worse: "low", scale: [0, 1] },
  { name: "effective_keys", title: "Effective keys", meaning: "how many evenly used keys would be as spread", worse: "low", scale: null },
  { name: "gradient", title: "Gradient p·(1−p)", meaning: "how much the top weight still moves with its score; small also where a row is spread wide", worse: "low", scale: [0, 0.25] },
];

/** Those that a training monitor records. */
export const RUN_FIGURES: readonly FigureKind<string>[] = [
  ...FIGURES.filter(({ name }) => name !== "effective_keys" && name !== "gradient"),
  { name: "not_a_number", title: "Rows not a number", meaning: "how many rows are NaN", worse: "high", scale: null },
];

/** The figure of that name, or the first. */
export const figureOf = <Name extends string>(kinds: readonly FigureKind<Name>[], name: string | undefined): FigureKind<Name> =>
  kinds.find((kind) => kind.name === name) ?? kinds[0]!;

/** The two ends of the colour scale: dark, then lit. What is of concern is lit. */
export function scaleOf(kind: FigureKind<string>, table: readonly (readonly Real[])[]): [number, number] {
  let [low, high] = kind.scale ?? [0, 1e-9];
  for (const row of kind.scale ? [] : table) {
    for (const value of row) if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  return kind.worse === "high" ? [low, high] : [high, low];
}
