/**
 * Scaled dot-product attention in float64, step by step, for sizes that a person reads.
 *
 *   raw = Q·Kᵀ → scaled = scale·raw → capped = c·tanh(s/c) → + bias → mask → softmax → weights·V
 *
 * The same order of operations as limelight.reference; the tests hold it to that module's figures.
 * What is masked takes no part in any sum, so NaN behind a mask stays there.
 */
import type { CellData } from "./api";

export type Vector = readonly number[];
export type Matrix = readonly Vector[];

export interface Options {
  /** undefined = 1/√d; 1 = no scaling. */
  readonly scale?: number | undefined;
  readonly softcap?: number | null;
  readonly bias?: Matrix | null;
  /** True = may attend; null = everything. */
  readonly mask?: readonly (readonly boolean[])[] | null;
  /** An extra logit that takes probability and gives no value. */
  readonly sink?: number | null;
}

/** Every table of one attention, each [queries][keys] unless said otherwise. */
export interface Trace {
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix | null;
  readonly scale: number;
  readonly softcap: number | null;
  readonly bias: Matrix | null;
  readonly raw: Matrix;
  readonly scaled: Matrix;
  readonly capped: Matrix;
  readonly biased: Matrix;
  readonly allowed: readonly (readonly boolean[])[];
  readonly rows: readonly Softmax[];
  readonly weights: Matrix;
  /** [queries][value size]; null without values. */
  readonly output: Matrix | null;
}

/** One row's softmax with every number in it. */
export interface Softmax {
  /** −∞ where not allowed. */
  readonly logits: Vector;
  /** The largest logit of a real key; −∞ without keys. */
  readonly max: number;
  /** What is taken off before the exponential: the larger of `max` and the sink. */
  readonly top: number;
  /** e^(logit − top), 0 where not allowed. */
  readonly powers: Vector;
  /** Their sum, the sink's power included. */
  readonly sum: number;
  readonly weights: Vector;
  /** The share that the sink takes. */
  readonly sink: number;
  readonly health: Health;
}

export type Verdict = "healthy" | "peaked" | "saturated" | "";

export interface Health {
  readonly maxLogit: number;
  readonly logsumexp: number;
  readonly entropy: number;
  readonly keys: number;
  /** The largest weight, p. */
  readonly maxProb: number;
  /** p·(1 − p). */
  readonly gradient: number;
  /** entropy / ln(keys). */
  readonly spread: number;
  readonly effectiveKeys: number;
  readonly verdict: Verdict;
}

export const SATURATED = 0.95;
export const PEAKED = 0.8;

export function dot(a: Vector, b: Vector): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

/** Q·Kᵀ: every query with every key. */
export function compare(query: Matrix, key: Matrix): number[][] {
  return query.map((q) => key.map((k) => dot(q, k)));
}

/** A·B. */
export function multiply(a: Matrix, b: Matrix): number[][] {
  const columns = b[0]?.length ?? 0;
  return a.map((row) =>
    Array.from({ length: columns }, (_, j) => row.reduce((sum, x, i) => sum + x * b[i]![j]!, 0)),
  );
}

/** Bottom-right aligned, as in the library: the last query sees the last key. */
export function causal(queries: number, keys: number): boolean[][] {
  return Array.from({ length: queries }, (_, i) =>
    Array.from({ length: keys }, (_, j) => j <= i + keys - queries),
  );
}

export function softmax(
  biased: Vector,
  allowed: readonly boolean[] = biased.map(() => true),
  sinkLogit = -Infinity,
): Softmax {
  const logits = biased.map((x, j) => (allowed[j] ? x : -Infinity));
  const max = largest(logits);
  const keys = allowed.filter(Boolean).length;
  const highest = Number.isNaN(max) ? max : Math.max(max, sinkLogit);
  const top = highest === -Infinity && keys === 0 ? 0 : highest; // a row without keys
  const shifted = biased.map((x, j) => (allowed[j] ? x - top : -Infinity));
  const powers = shifted.map(Math.exp);
  const sinkShift = sinkLogit - top;
  const sinkPower = Math.exp(sinkShift);
  const sum = powers.reduce((total, p) => total + p, 0) + sinkPower;
  const whole = sum === 0 ? 1 : sum;
  const weights = powers.map((p) => p / whole);
  // Σ p·(s − max): never Σ p·s, which cancels at large logits.
  const mean = powers.reduce((total, p, j) => total + times(p, shifted[j]!), 0);
  const entropy = sum === 0 ? 0 : Math.log(sum) - (mean + times(sinkPower, sinkShift)) / sum;
  const outcomes = keys + (sinkLogit === -Infinity ? 0 : 1);
  const health = judge(max, top + Math.log(sum), atLeastZero(entropy), keys, outcomes);
  return { logits, max, top, powers, sum, weights, sink: sinkPower / whole, health };
}

/** What follows from a row's largest logit, logsumexp, entropy, keys and outcomes: a sink is one more. */
export function judge(
  maxLogit: number,
  logsumexp: number,
  entropy: number,
  keys: number,
  outcomes = keys,
): Health {
  const maxProb = keys > 0 ? Math.exp(maxLogit - logsumexp) : 0;
  return {
    maxLogit,
    logsumexp,
    entropy,
    keys,
    maxProb,
    gradient: maxProb * (1 - maxProb),
    spread: outcomes > 1 ? Math.min(1, entropy / Math.log(outcomes)) : Number(keys === 1),
    effectiveKeys: Math.exp(entropy),
    verdict:
      keys < 2 || Number.isNaN(maxProb)
        ? ""
        : maxProb >= SATURATED
          ? "saturated"
          : maxProb >= PEAKED
            ? "peaked"
            : "healthy",
  };
}

/** The values by the weights; a key that is not allowed gives nothing, not even 0·NaN. */
export function mix(weights: Vector, allowed: readonly boolean[], value: Matrix): number[] {
  return Array.from({ length: value[0]?.length ?? 0 }, (_, c) =>
    weights.reduce((sum, w, j) => (allowed[j] ? sum + w * value[j]![c]! : sum), 0),
  );
}

export function trace(query: Matrix, key: Matrix, value: Matrix | null, options: Options = {}): Trace {
  const size = query[0]?.length ?? key[0]?.length ?? 1;
  const scale = options.scale ?? 1 / Math.sqrt(size);
  const softcap = options.softcap ?? null;
  const bias = options.bias ?? null;
  const mask = options.mask ?? null;

  const raw = compare(query, key);
  const scaled = raw.map((row) => row.map((s) => scale * s));
  const capped = softcap === null ? scaled : scaled.map((row) => row.map((s) => softcap * Math.tanh(s / softcap)));
  const biased = bias === null ? capped : capped.map((row, i) => row.map((s, j) => s + bias[i]![j]!));
  const allowed = raw.map((row, i) =>
    row.map((_, j) => (mask?.[i]?.[j] ?? true) && bias?.[i]?.[j] !== -Infinity),
  );
  const rows = biased.map((row, i) => softmax(row, allowed[i], options.sink ?? -Infinity));
  const weights = rows.map((row) => row.weights);
  const output = value && weights.map((row, i) => mix(row, allowed[i]!, value));
  return { query, key, value, scale, softcap, bias, raw, scaled, capped, biased, allowed, rows, weights, output };
}

/** One weight with all that goes into it: limelight.worked.trace.Trace.cell. */
export function cell(
  done: Trace,
  row: number,
  column: number,
  tokens: readonly [query: string, key: string] = ["", ""],
): CellData {
  const { query, key, value, raw, scaled, capped, biased, rows, weights } = done;
  const { logits, max, top, sum, powers } = rows[row]!;
  const allowed = done.allowed[row]![column]!;
  const weight = weights[row]![column]!;
  // Shown relative to the largest real key, also where a sink is larger still.
  const shift = Math.exp(top - max);
  const payload = value?.[column] ?? null;
  return {
    row,
    column,
    head: 0,
    batch: 0,
    query_token: tokens[0],
    key_token: tokens[1],
    query: query[row]!,
    key: key[column]!,
    products: query[row]!.map((q, c) => q * key[column]![c]!),
    raw: raw[row]![column]!,
    scale: done.scale,
    scaled: scaled[row]![column]!,
    softcap: done.softcap,
    capped: capped[row]![column]!,
    bias: done.bias?.[row]?.[column] ?? null,
    biased: biased[row]![column]!,
    allowed,
    logit: allowed ? logits[column]! : null,
    row_max: max === -Infinity ? null : max,
    exponential: allowed ? powers[column]! * shift : 0,
    row_sum: max === -Infinity ? 0 : sum * shift,
    weight,
    value: payload,
    contribution: payload && payload.map((v) => (allowed ? weight * v : 0)),
  };
}

function largest(values: Vector): number {
  return values.reduce((top, x) => (Number.isNaN(top) || Number.isNaN(x) ? NaN : Math.max(top, x)), -Infinity);
}

/** a·b where 0·∞ counts as 0, as in p·ln p at p = 0; NaN stays NaN. */
function times(a: number, b: number): number {
  return a === 0 && !Number.isNaN(b) ? 0 : a * b;
}

function atLeastZero(x: number): number {
  return x < 0 ? 0 : x;
}
