/** A small line chart's geometry: axes, ticks, and the paths of a mean and of what lies around it. */
import type { Real } from "$lib/api";

export interface Line {
  readonly look: "warm" | "cold" | "plain";
  readonly x: readonly number[];
  /** [seed][point] */
  readonly seeds: readonly (readonly Real[])[];
}

export interface Axis {
  readonly from: number;
  readonly to: number;
  readonly log: boolean;
}

/** Where a value lies between the ends of an axis: 0 to 1 inside. */
export function share({ from, to, log }: Axis, value: number): number {
  return log ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
}

/** Round values within an axis: powers of ten, or about `most` steps of 1, 2 or 5. */
export function ticks({ from, to, log }: Axis, most: number): number[] {
  if (log) {
    const first = Math.ceil(Math.log10(from) - 1e-9);
    const last = Math.floor(Math.log10(to) + 1e-9);
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, n) => 10 ** (first + n));
  }
  const rough = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough - 1e-12) ?? rough;
  const first = Math.ceil(from / step - 1e-9);
  const count = Math.floor(to / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, n) => Number(((first + n) * step).toPrecision(12)));
}

/** At each point the lowest, the mean and the highest of the seeds; points without a number are left out. */
export function around(line: Line): { x: number; low: number; mean: number; high: number }[] {
  return line.x.flatMap((x, n) => {
    const found = line.seeds.map((seed) => seed[n] ?? null).filter((y): y is number => y !== null);
    if (!found.length) return [];
    const mean = found.reduce((sum, y) => sum + y, 0) / found.length;
    return [{ x, low: Math.min(...found), mean, high: Math.max(...found) }];
  });
}

/** A path through points. */
export const path = (points: readonly (readonly [number, number])[]): string =>
  points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");
