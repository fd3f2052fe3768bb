/** The geometry of a heat-map: where cells, labels and the visible window are, in CSS pixels. */
import type { Range } from "./source";

export interface Plot {
  /** The corner of the cells, after the labels. */
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Room at the right for the end of slanted labels. */
  readonly right: number;
  /** Column labels lie flat where they fit, else they slant. */
  readonly flat: boolean;
  /** The length of a slanted label. */
  readonly label: number;
}

export interface View {
  readonly k: number;
  readonly x: number;
  readonly y: number;
}

export const WHOLE: View = { k: 1, x: 0, y: 0 };
const MOST_LABEL = 112;
const LABEL_SHARE = 0.22; // of a narrow screen: the cells come first

export function layout(
  space: number,
  most: number,
  rows: number,
  columns: number,
  rowLabel: number,
  columnLabel: number,
): Plot {
  const room = Math.min(MOST_LABEL, space * LABEL_SHARE);
  const left = Math.round(Math.min(rowLabel, room)) + 14;
  const shape = Math.min(3, Math.max(1 / 3, (rows || 1) / (columns || 1)));
  const fit = (wide: number): [number, number] => {
    const width = Math.max(40, Math.min(wide, most, most / shape));
    return [Math.floor(width), Math.floor(width * shape)];
  };
  const [width, height] = fit(space - left - 2);
  if (columns && Math.min(columnLabel, MOST_LABEL) + 8 <= width / columns) return { left, top: 28, width, height, right: 0, flat: true, label: 0 };
  const label = Math.min(columnLabel, room);
  const right = Math.round(label * 0.5);
  const [narrow, lower] = fit(space - left - right - 2);
  return { left, top: Math.round(label * 0.8) + 16, width: narrow, height: lower, right, flat: false, label };
}

/** Pixel of the edge before a cell, along one axis. */
export function edge(index: number, count: number, size: number, k: number, shift: number): number {
  return (index / count) * size * k + shift;
}

/** The cell under a pixel, along one axis; clamped. */
export function cellAt(pixel: number, count: number, size: number, k: number, shift: number): number {
  return Math.min(count - 1, Math.max(0, Math.floor(((pixel - shift) / (size * k)) * count)));
}

/** The cells in view, along one axis: half-open. */
export function inView(count: number, size: number, k: number, shift: number): Range {
  const slack = 1e-6; // a rounding is not a cell
  const from = Math.max(0, Math.floor((-shift / (size * k)) * count + slack));
  const to = Math.min(count, Math.ceil(((size - shift) / (size * k)) * count - slack));
  return [from, Math.max(from, to)];
}

/** What is in view along one axis, in cells and parts of them: the place itself, not what it touches. */
export function exactly(count: number, size: number, k: number, shift: number): Range {
  const at = (pixel: number): number => ((pixel - shift) / (size * k)) * count;
  return [Math.max(0, at(0)), Math.min(count, at(size))];
}

/** The view that shows those cells as large as they fit. */
export function viewOf(plot: Plot, counts: readonly [number, number], rows: Range, columns: Range, most: number): View {
  const k = Math.min(most, Math.max(1, Math.min(counts[0] / (rows[1] - rows[0]), counts[1] / (columns[1] - columns[0]))));
  const shift = (range: Range, count: number, size: number): number => {
    const middle = ((range[0] + range[1]) / 2 / count) * size * k;
    return Math.min(0, Math.max(size - size * k, size / 2 - middle));
  };
  return { k, x: shift(columns, counts[1], plot.width), y: shift(rows, counts[0], plot.height) };
}

/** A round step so that ticks are at least `apart` pixels from each other: 1, 2, 5, 10, 20, … */
export function tickStep(cellPixels: number, apart = 64): number {
  const rough = apart / cellPixels;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= rough) ?? 10 * power;
}
