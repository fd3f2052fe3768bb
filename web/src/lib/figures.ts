/** The figures of a head that a page offers, and the colours that follow. */
import { FIGURES as ALL, RUN_FIGURES as RECORDED, type Figure, type FigureKind, type Real } from "./schema";

export const FIGURES = ALL;

/** Those that a training monitor records. */
export const RUN_FIGURES: readonly FigureKind[] = ALL.filter(({ name }) => (RECORDED as readonly Figure[]).includes(name));

/** The figure of that name, or the first. */
export const figureOf = (kinds: readonly FigureKind[], name: string | undefined): FigureKind =>
  kinds.find((kind) => kind.name === name) ?? kinds[0]!;

/** The two ends of the colour scale: dark, then lit. */
export function scaleOf(kind: FigureKind, table: readonly (readonly Real[])[]): [number, number] {
  let [low, high] = kind.scale ?? [0, 1e-9];
  for (const row of kind.scale ? [] : table) {
    for (const value of row) if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  return kind.lit === "high" ? [low, high] : [high, low];
}
