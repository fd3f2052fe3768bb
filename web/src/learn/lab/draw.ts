/**
 * One query and some keys with standard normal entries, long enough for the largest d_k. A smaller
 * d_k takes their first entries, so that sliding shows one and the same draw grow.
 */
import { normals } from "$lib/random";

export const LONGEST = 1024;
export const MOST_DRAWS = 2 ** 31 - 1; // seeds of draws are counted up to here

export interface Draw {
  readonly query: readonly number[];
  readonly keys: readonly (readonly number[])[];
  /** The raw scores with the first d_k entries. */
  scores(size: number): number[];
}

export function draw(seed: number, count: number): Draw {
  const next = normals(seed);
  const vector = (): number[] => Array.from({ length: LONGEST }, next);
  const query = vector();
  const keys = Array.from({ length: count }, vector);
  // partial[j][d]: the score of key j over d entries; a slide then costs nothing.
  const partial = keys.map((key) => {
    const sums = new Float64Array(LONGEST + 1);
    for (let d = 0; d < LONGEST; d++) sums[d + 1] = sums[d]! + query[d]! * key[d]!;
    return sums;
  });
  return { query, keys, scores: (size) => partial.map((sums) => sums[size]!) };
}
