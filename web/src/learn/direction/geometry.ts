/** Arrows in the plane: what a score is when it is drawn. */
export type Pair = readonly [number, number];

export const length = ([x, y]: Pair): number => Math.hypot(x, y);

/** The direction, in degrees from −180 to 180, counted from the right and up. */
export const angle = ([x, y]: Pair): number => (Math.atan2(y, x) * 180) / Math.PI;

/** An arrow of that direction and length, to two digits after the point. */
export function arrow(degrees: number, size: number): [number, number] {
  const turn = (degrees * Math.PI) / 180;
  return [rounded(size * Math.cos(turn)), rounded(size * Math.sin(turn))];
}

const rounded = (x: number): number => Math.round(x * 100) / 100 || 0;

/** How far an arrow reaches along another's line: negative where it points away. */
export function along(arrow: Pair, line: Pair): number {
  const size = length(line);
  return size === 0 ? 0 : (arrow[0] * line[0] + arrow[1] * line[1]) / size;
}

/** Where the perpendicular from an arrow's tip meets another's line. */
export function foot(arrow: Pair, line: Pair): [number, number] {
  const size = length(line);
  if (size === 0) return [0, 0];
  const t = along(arrow, line) / size;
  return [t * line[0], t * line[1]];
}
