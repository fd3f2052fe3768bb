/**
 * The toy of the lessons: a few words with four features each, and three small matrices set by hand
 * so that things look for traits and deeds look for things. Shared by the parts that use it.
 */
import { causal, multiply, trace, type Matrix, type Trace } from "$lib/attention";
import { t } from "$lib/language.svelte";
import { hash, normals } from "$lib/random";
import { FEATURES, plainly, read } from "./lexicon";
import { register, type Kept } from "./state.svelte";

export { FEATURES };
export const ROLES = ["trait", "thing", "deed"] as const;
export const SENTENCE = "The curious cat watched";
export const LONGER = "The curious cat watched the bird";
export const MOST_WORDS = 6;
export const LONGEST_SENTENCE = 80; // characters

export const W_QUERY: Matrix = [[0, 2, 0], [3, 0, 0.5], [0, 3, 0], [0, 2, 0]];
export const W_KEY: Matrix = [[2, 0, 0], [0, 2, 0], [0, 0, 1.5], [-1, -1, 0]];
export const W_VALUE: Matrix = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0.5]];

/** A word's features: known ones by reading, others drawn once for the word and kept to one digit. */
export const embed = (word: string): number[] => read(word) ?? drawn(word);

function drawn(word: string): number[] {
  const next = normals(hash(plainly(word)));
  return FEATURES.map(() => Math.round(Math.max(-1, Math.min(1, next() * 0.6)) * 10) / 10);
}

export function split(sentence: string): string[] {
  return sentence.trim().split(/\s+/).filter(Boolean);
}

/** The attention of a sentence under the toy's own matrices. */
export function toyTrace(words: readonly string[], mask: readonly (readonly boolean[])[] | null = null): Trace {
  const x = words.map(embed);
  return trace(multiply(x, W_QUERY), multiply(x, W_KEY), multiply(x, W_VALUE), { mask });
}

const copy = (matrix: Matrix): number[][] => matrix.map((row) => [...row]);

export type Weights = "query" | "key" | "value";

const W: Readonly<Record<Weights, Matrix>> = { query: W_QUERY, key: W_KEY, value: W_VALUE };
const NAMES: Readonly<Record<Weights, string>> = { query: "w_q", key: "w_k", value: "w_v" };
const WEIGHTS = Object.keys(W) as Weights[];

/** The cells of a table that were changed, as "row.column:number" with semicolons between them. */
function edits(now: Matrix, start: Matrix): string {
  const changed = now.flatMap((row, i) => row.flatMap((x, j) => (x === start[i]?.[j] ? [] : [`${i}.${j}:${x}`])));
  return changed.join(";");
}

/** A copy of a table with such cells in it; what makes no sense is left out. */
function edited(start: Matrix, said = ""): number[][] {
  const rows = copy(start);
  for (const edit of said.split(";")) {
    const found = /^(\d+)\.(\d+):(-?[\d.]+(?:e-?\d+)?)$/.exec(edit);
    if (!found) continue;
    const [i, j, x] = found.slice(1).map(Number) as [number, number, number];
    const row = rows[i];
    if (row && j < row.length && Number.isFinite(x)) row[j] = x;
  }
  return rows;
}

class Toy implements Kept {
  readonly name = "step";
  sentence = $state(SENTENCE);
  words: string[] = $state(split(SENTENCE));
  x: number[][] = $state(split(SENTENCE).map(embed));
  w: Record<Weights, number[][]> = $state({ query: copy(W_QUERY), key: copy(W_KEY), value: copy(W_VALUE) });
  causal = $state(false);

  query = $derived(multiply(this.x, this.w.query));
  key = $derived(multiply(this.x, this.w.key));
  value = $derived(multiply(this.x, this.w.value));
  mask = $derived(this.causal ? causal(this.words.length, this.words.length) : null);
  trace = $derived(trace(this.query, this.key, this.value, { mask: this.mask }));

  /** For each word whether numbers of it were drawn, and not yet replaced by the reader. */
  drawn = $derived(
    this.words.map((word, i) => read(word) === null && drawn(word).some((x, j) => x === this.x[i]?.[j])),
  );

  /** What is wrong with the sentence as typed, or null. */
  trouble = $derived.by(() => {
    const count = split(this.sentence).length;
    if (count === 0) return t`Type at least one word.`;
    return count > MOST_WORDS ? t`The first ${MOST_WORDS} words are used.` : null;
  });

  /** A word that stays where it is keeps its numbers, also edited ones. */
  type(sentence: string): void {
    this.sentence = sentence;
    const words = split(sentence).slice(0, MOST_WORDS);
    if (!words.length) return;
    this.x = words.map((word, i) => (this.words[i] === word ? this.x[i]! : embed(word)));
    this.words = words;
  }

  read(given: Readonly<Record<string, string>>): void {
    const said = given["sentence"] ?? "";
    this.sentence = split(said).length && said.length <= LONGEST_SENTENCE ? said : SENTENCE;
    this.words = split(this.sentence).slice(0, MOST_WORDS);
    this.x = edited(this.words.map(embed), given["x"]);
    for (const each of WEIGHTS) this.w[each] = edited(W[each], given[NAMES[each]]);
    this.causal = given["causal"] === "1";
  }

  write(all = false): Record<string, string> {
    const said = {
      sentence: all || this.sentence !== SENTENCE ? this.sentence : "",
      x: edits(this.x, this.words.map(embed)),
      ...Object.fromEntries(WEIGHTS.map((each) => [NAMES[each], edits(this.w[each], W[each])])),
      causal: this.causal ? "1" : all ? "0" : "",
    };
    return Object.fromEntries(Object.entries(said).filter(([, text]) => text));
  }

  reset(): void {
    this.read({});
  }
}

export const toy = register(new Toy());
