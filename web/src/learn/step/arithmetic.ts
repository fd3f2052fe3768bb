/** The sum behind the number that is pointed at, written out. */
import type { Matrix, Trace } from "$lib/attention";
import { number, operand } from "$lib/format";
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
  const from = `“${words[row]}”`;
  const to = `“${words[column]}”`;
  const { raw, scaled, allowed, rows } = trace;
  switch (stage) {
    case "input":
      return {
        what: toy.drawn[row]
          ? `Drawn at random for ${from}: how much of a ${FEATURES[column]} is it?`
          : `How much of a ${FEATURES[column]} is ${from}?`,
        lines: [short(toy.x[row]![column]!)],
      };
    case "project": {
      const verb = { query: "seeks", key: "offers", value: "hands over" }[table];
      const w = toy.w[table].map((line) => line[column]!);
      return {
        what: `How much ${ROLES[column]} ${from} ${verb}: its row of X times that column of W`,
        lines: products(toy.x[row]!, w, toy[table][row]![column]!),
      };
    }
    case "compare":
      return {
        what: `The query of ${from} times the key of ${to}`,
        lines: products(toy.query[row]!, toy.key[column]!, raw[row]![column]!),
      };
    case "scale":
      return {
        what: `The score of ${from} for ${to}, divided by √${toy.key[0]!.length}`,
        lines: [
          `${exact(raw[row]![column]!)} ÷ ${exact(Math.sqrt(toy.key[0]!.length))}`,
          `= ${exact(scaled[row]![column]!)}`,
        ],
      };
    case "mask":
      return allowed[row]![column]
        ? { what: `${from} may look at ${to}: the score stays`, lines: [exact(scaled[row]![column]!)] }
        : { what: `${to} comes after ${from} and is hidden: the score becomes`, lines: ["−∞"] };
    case "normalise": {
      const { powers, sum, max, weights } = rows[row]!;
      if (!allowed[row]![column]) {
        return { what: `${to} is hidden from ${from}`, lines: ["e^(−∞) = 0", `0 ÷ ${exact(sum)}`, "= 0"] };
      }
      return {
        what: `The share of ${to} in the row of ${from}, whose largest score ${exact(max)} is taken off first`,
        lines: [
          `e^(${exact(scaled[row]![column]!)} − ${operand(max, exact)}) = ${exact(powers[column]!)}`,
          `${exact(powers[column]!)} ÷ ${exact(sum)}`,
          `= ${exact(weights[column]!)}`,
        ],
      };
    }
    case "mix":
      return {
        what: `How much ${ROLES[column]} reaches ${from}: its weights times that column of V`,
        lines: products(
          trace.weights[row]!,
          toy.value.map((line) => line[column]!),
          trace.output![row]![column]!,
        ),
      };
  }
}
