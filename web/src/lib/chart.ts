/** A small line chart's geometry: axes, ticks, and the paths of a mean and of what lies around it. */
import { grouped } from "./language.svelte";
import type { Real } from "./schema";

export interface Line {
  readonly look: "warm" | "cold" | "plain";
  readonly x: readonly number[];
  /** [seed][point] */
  readonly seeds: readonly (readonly Real[])[];
  /** Drawn thin: not the one that is looked at. */
  readonly faint?: boolean;
}

export interface Point {
  readonly x: number;
  readonly low: number;
  readonly mean: number;
  readonly high: number;
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

/** At each point the lowest, the mean and the highest of the seeds, in stretches of points that have a number. */
export function stretches(line: Line): Point[][] {
  const found: Point[][] = [[]];
  line.x.forEach((x, n) => {
    const known = line.seeds.map((seed) => seed[n] ?? null).filter((y): y is number => y !== null);
    if (!known.length) return void found.push([]);
    const mean = known.reduce((sum, y) => sum + y, 0) / known.length;
    found.at(-1)!.push({ x, low: Math.min(...known), mean, high: Math.max(...known) });
  });
  return found.filter((part) => part.length);
}

/** The same without the gaps. */
export const around = (line: Line): Point[] => stretches(line).flat();

/** The axis that holds all the numbers there are, and those named; something wide even where they are all alike. */
export function holding(values: readonly Real[], ...also: number[]): Axis {
  let [from, to] = [Infinity, -Infinity];
  for (const value of [...values, ...also]) if (value !== null) [from, to] = [Math.min(from, value), Math.max(to, value)];
  if (from > to) return { from: 0, to: 1, log: false };
  return { from, to: to > from ? to : from + 1, log: false };
}

/** A tick in few digits: 1,200, 0.05, 1e−6. */
export function short(tick: number): string {
  const size = Math.abs(tick);
  const text = size && (size < 1e-4 || size >= 1e7) ? tick.toExponential().replace("e+", "e") : grouped(tick, { maximumFractionDigits: 6 });
  return text.replaceAll("-", "−");
}

/** A tick of a logarithmic axis: 10⁴. */
export const power = (tick: number): string =>
  `10${String(Math.round(Math.log10(tick))).replace(/./g, (sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(sign)] ?? "⁻")}`;

/** A path through points. */
export const path = (points: readonly (readonly [number, number])[]): string =>
  points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");
