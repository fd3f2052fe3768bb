/**
 * What travels in a stage, and where it stops. A picture is a function of a moment: at a whole number all
 * figures are the trace's own, in between things are on their way.
 */
import type { Matrix, Trace, Vector } from "$lib/attention";
import { fixed, number, operand, percent } from "$lib/format";
import { t } from "$lib/language.svelte";
import type { Term } from "$views/FormulaMathML.svelte";
import { FEATURES, ROLES, type Weights } from "../../toy.svelte";
import type { Point } from "../arithmetic";
import { TEXTS } from "./texts";

/** A row, stood up, passes over columns; over each it leaves the sum of the products. */
export interface Slide {
  readonly kind: "slide";
  readonly entries: readonly string[];
  readonly moving: Vector;
  readonly columns: Matrix;
  readonly names: readonly string[];
  readonly products: Matrix;
  readonly sums: Vector;
}

/** Bars of one row: what each is at every stop; null is −∞, hidden. */
export interface Pour {
  readonly kind: "pour";
  readonly names: readonly string[];
  readonly stops: readonly (readonly (number | null)[])[];
  /** What a bar's length means at each stop. */
  readonly as: readonly ("score" | "power" | "share")[];
  readonly sum: number | null;
}

/** Values flow into the output, each in proportion to its weight. */
export interface Flow {
  readonly kind: "flow";
  readonly names: readonly string[];
  readonly entries: readonly string[];
  readonly weights: Vector;
  readonly allowed: readonly boolean[];
  readonly values: Matrix;
  /** The output after so many values: [stops][entries]. */
  readonly sums: Matrix;
}

export type Picture = Slide | Pour | Flow;

export interface Motion {
  readonly picture: Picture;
  /** A sentence for each stop. */
  readonly said: readonly string[];
}

interface Toy {
  readonly words: readonly string[];
  readonly x: Matrix;
  readonly w: Readonly<Record<Weights, Matrix>>;
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly trace: Trace;
}

const two = (x: number): string => String(Number(x.toFixed(2))).replace("-", "−");
const short = (x: number | null): string => (x === null ? number(x) : two(x));
const list = (row: Vector): string => `[${row.map(two).join(", ")}]`;
const added = (a: Vector, b: Vector, sum: number): string =>
  `${a.map((x, n) => `${operand(x, short)}·${operand(b[n]!, short)}`).join(" + ")} = ${two(sum)}`;

const said = (names: readonly string[]): string[] => names.map((name) => t(name));

/** The motion of a stage, for the row that is pointed at; null where nothing moves. */
export function motion(stage: Term, toy: Toy, at: Pick<Point, "table" | "row">): Motion | null {
  const { words, trace } = toy;
  const { row } = at;
  const word = words[row] ?? "";
  switch (stage) {
    case "input":
      return null;
    case "project": {
      const columns = ROLES.map((_, c) => toy.w[at.table].map((line) => line[c]!));
      return slide(said(FEATURES), toy.x[row]!, columns, said(ROLES), toy[at.table][row]!, [
        TEXTS.project[at.table](word),
        ...said(ROLES).map((role, c) => TEXTS.project.stop(word, role, added(toy.x[row]!, columns[c]!, toy[at.table][row]![c]!))),
      ]);
    }
    case "compare":
      return slide(said(ROLES), toy.query[row]!, toy.key, words, trace.raw[row]!, [
        TEXTS.compare.start(word),
        ...words.map((other, j) => TEXTS.compare.stop(word, other, added(toy.query[row]!, toy.key[j]!, trace.raw[row]![j]!))),
      ]);
    case "scale":
      return {
        picture: pour(words, [trace.raw[row]!, trace.scaled[row]!], ["score", "score"]),
        said: [TEXTS.scale.start(word), TEXTS.scale.stop(two(1 / trace.scale))],
      };
    case "mask":
      return {
        picture: pour(words, [trace.scaled[row]!, shown(trace, row)], ["score", "score"]),
        said: [TEXTS.mask.start(word), masked(trace, row, words)],
      };
    case "normalise": {
      const { top, powers, sum, weights } = trace.rows[row]!;
      const logits = shown(trace, row);
      const shifted = logits.map((s) => (s === null ? null : s - top));
      return {
        picture: { ...pour(words, [logits, shifted, powers, weights], ["score", "score", "power", "share"]), sum },
        said: [TEXTS.normalise.start(word), TEXTS.normalise.shifted(two(top)), TEXTS.normalise.powers(two(sum)), t(TEXTS.normalise.shares)],
      };
    }
    case "mix":
      return flow(trace, row, words, toy.value);
  }
}

function slide(
  entries: readonly string[], moving: Vector, columns: Matrix, names: readonly string[], sums: Vector, said: string[],
): Motion {
  const products = columns.map((column) => column.map((x, n) => x * moving[n]!));
  return { picture: { kind: "slide", entries, moving, columns, names, products, sums }, said };
}

const pour = (names: readonly string[], stops: Pour["stops"], as: Pour["as"]): Pour => ({ kind: "pour", names, stops, as, sum: null });

const shown = ({ scaled, allowed }: Trace, row: number): (number | null)[] =>
  scaled[row]!.map((s, j) => (allowed[row]![j] ? s : null));

function masked({ allowed }: Trace, row: number, words: readonly string[]): string {
  if (allowed.every((line) => line.every(Boolean))) return t(TEXTS.mask.none);
  const hidden = words.filter((_, j) => !allowed[row]![j]).map((word) => t`“${word}”`);
  if (!hidden.length) return t(TEXTS.mask.last);
  return hidden.length === 1 ? TEXTS.mask.stop(hidden[0]!) : TEXTS.mask.more(hidden.join(", "));
}

function flow({ weights, allowed, output }: Trace, row: number, words: readonly string[], values: Matrix): Motion {
  const sums: number[][] = [values[0]!.map(() => 0)];
  for (const [j, value] of values.entries()) {
    sums.push(sums[j]!.map((sum, c) => (allowed[row]![j] ? sum + weights[row]![j]! * value[c]! : sum)));
  }
  sums[words.length] = [...(output?.[row] ?? sums[words.length]!)];
  const stops = words.map((word, j) => {
    if (!allowed[row]![j]) return TEXTS.mix.hidden(word);
    const tell = j === words.length - 1 ? TEXTS.mix.end : TEXTS.mix.stop;
    return tell(percent(weights[row]![j]!), word, list(sums[j + 1]!));
  });
  return {
    picture: { kind: "flow", names: words, entries: said(ROLES), weights: weights[row]!, allowed: allowed[row]!, values, sums },
    said: [TEXTS.mix.start(words[row] ?? ""), ...stops],
  };
}

/** How far one is between two stops, eased: slow at both ends. */
export function eased(moment: number): { from: number; to: number; part: number } {
  const from = Math.floor(moment);
  const on = moment - from;
  return { from, to: Math.ceil(moment), part: on * on * (3 - 2 * on) };
}

export const between = (a: number, b: number, part: number): number => a + (b - a) * part;

/** A figure as it stands in a picture. */
export const figure = (x: number | null): string => (x === null ? "−∞" : fixed(x, Math.abs(x) >= 99.95 ? 0 : 2));
