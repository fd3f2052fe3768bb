/** The sum behind the number that is pointed at, written out. */
import type { Matrix, Trace } from "$lib/attention";
import { number, operand } from "$lib/format";
import { t } from "$lib/language.svelte";
import type { Term } from "$views/FormulaMathML.svelte";
import { FEATURES, ROLES, type Weights } from "../toy.svelte";

export interface Point {
  readonly table: Weights;
  readonly row: number;
  readonly column: number;
}

export interface Sum {
  readonly what: string;
  readonly lines: readonly string[];
}

interface Toy {
  readonly words: readonly string[];
  readonly x: Matrix;
  readonly w: Readonly<Record<Weights, Matrix>>;
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly causal: boolean;
  readonly drawn: readonly boolean[];
  readonly trace: Trace;
}

/** Without the noughts at the end. */
const trim = (text: string): string => text.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
const exact = (value: number | null): string => trim(number(value));
const short = (value: number | null): string => exact(value && Number(value.toFixed(4)));
const factor = (value: number): string => operand(value, short);

function products(a: readonly number[], b: readonly number[], total: number): string[] {
  return [a.map((x, n) => `${factor(x)}·${factor(b[n]!)}`).join(" + "), `= ${exact(total)}`];
}

export function arithmetic(stage: Term, toy: Toy, { table, row, column }: Point): Sum {
  const { words, trace } = toy;
  const word = words[row]!;
  const other = words[column]!;
  const { raw, scaled, allowed, rows } = trace;
  switch (stage) {
    case "input":
      return {
        what: toy.drawn[row]
          ? t`Drawn at random for “${word}”: how much of a ${t(FEATURES[column]!)} is it?`
          : t`How much of a ${t(FEATURES[column]!)} is “${word}”?`,
        lines: [short(toy.x[row]![column]!)],
      };
    case "project": {
      const role = t(ROLES[column]!);
      const w = toy.w[table].map((line) => line[column]!);
      return {
        what: {
          query: t`How much ${role} “${word}” seeks: its row of X times that column of W`,
          key: t`How much ${role} “${word}” offers: its row of X times that column of W`,
          value: t`How much ${role} “${word}” hands over: its row of X times that column of W`,
        }[table],
        lines: products(toy.x[row]!, w, toy[table][row]![column]!),
      };
    }
    case "compare":
      return {
        what: t`The query of “${word}” times the key of “${other}”`,
        lines: products(toy.query[row]!, toy.key[column]!, raw[row]![column]!),
      };
    case "scale":
      return {
        what: t`The score of “${word}” for “${other}”, divided by √${toy.key[0]!.length}`,
        lines: [
          `${exact(raw[row]![column]!)} ÷ ${exact(Math.sqrt(toy.key[0]!.length))}`,
          `= ${exact(scaled[row]![column]!)}`,
        ],
      };
    case "mask":
      return allowed[row]![column]
        ? { what: t`“${word}” may look at “${other}”: the score stays`, lines: [exact(scaled[row]![column]!)] }
        : { what: t`“${other}” comes after “${word}” and is hidden: the score becomes`, lines: ["−∞"] };
    case "normalise": {
      const { powers, sum, max, weights } = rows[row]!;
      if (!allowed[row]![column]) {
        return { what: t`“${other}” is hidden from “${word}”`, lines: ["e^(−∞) = 0", `0 ÷ ${exact(sum)}`, "= 0"] };
      }
      return {
        what: t`The share of “${other}” in the row of “${word}”, whose largest score ${exact(max)} is taken off first`,
        lines: [
          `e^(${exact(scaled[row]![column]!)} − ${operand(max, exact)}) = ${exact(powers[column]!)}`,
          `${exact(powers[column]!)} ÷ ${exact(sum)}`,
          `= ${exact(weights[column]!)}`,
        ],
      };
    }
    case "mix":
      return {
        what: t`How much ${t(ROLES[column]!)} reaches “${word}”: its weights times that column of V`,
        lines: products(
          trace.weights[row]!,
          toy.value.map((line) => line[column]!),
          trace.output![row]![column]!,
        ),
      };
  }
}
