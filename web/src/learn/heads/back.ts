/** Two heads set by hand, and the matrix that brings them back: small enough to follow. */
import { multiply, trace, type Matrix } from "$lib/attention";
import { embed, W_KEY, W_QUERY } from "../toy.svelte";

/** Things look for traits (the toy's own head); and things look for deeds. */
export const W_Q: readonly Matrix[] = [W_QUERY, [[0, 0, 0.5], [0, 0, 3], [0, 1, 0], [0, 0, 1]]];
export const W_K: readonly Matrix[] = [W_KEY, [[0.5, 0, 0], [0, 1, 0], [0, 0, 2], [0, 0, -1]]];
/** The first hands over trait and thing, the second deed and glue. */
export const W_V: readonly Matrix[] = [
  [[1, 0], [0, 1], [0, 0], [0, 0]],
  [[0, 0], [0, 0], [1, 0], [0, 1]],
];
export const W_O: Matrix = [[1, 0, 0, 0], [0.2, 0, 0, 0], [0, 0, 0.8, 0], [0, 0, 0.1, 0.2]];

export interface Back {
  readonly x: readonly number[];
  readonly side: readonly number[];
  readonly added: readonly number[];
  readonly after: readonly number[];
}

/** The row of one word through both heads, W_O, and the addition. */
export function back(words: readonly string[], row: number, on: readonly boolean[], replace: boolean): Back {
  const x = words.map(embed);
  const side = W_Q.flatMap((_, h) => {
    const done = trace(multiply(x, W_Q[h]!), multiply(x, W_K[h]!), multiply(x, W_V[h]!));
    return done.output![row]!.map((v) => (on[h] ? v : 0));
  });
  const added = multiply([side], W_O)[0]!;
  return { x: x[row]!, side, added, after: replace ? added : x[row]!.map((v, n) => v + added[n]!) };
}
