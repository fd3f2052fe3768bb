// Written by web/generate.py from limelight's Python: change that, not this.

/** A float that may not be finite, as it travels. */
export type Real = number | null;
export type Figure = "rows" | "judged" | "not_a_number" | "max_logit" | "max_prob" | "gradient" | "entropy" | "spread" | "effective_keys" | "peaked" | "saturated";
export type Lit = "weight" | "value";
export type Pool = "max" | "mean";
export type RunFigure = "max_logit" | "max_prob" | "entropy" | "spread" | "peaked" | "saturated" | "not_a_number";
export type Side = "row" | "column";
export type Step = "raw" | "scaled" | "weights" | "output" | "key" | "value" | "why";
export type TrainingFigure = "loss" | "score_gradient" | "spread" | "saturated";
export type Verdict = "healthy" | "peaked" | "saturated" | "";

/**
 * A stretch of steps during which an alarm of one head was on; `cleared` is null while it is.
 *
 * `index` is the head's among all heads of the run, null for a site that no record has told of.
 */
export interface Alarm {
  readonly raised: AlarmLine;
  readonly index: Real;
  readonly cleared: Real;
}

/** A head crossed a bound, or came back. */
export interface AlarmLine {
  readonly kind: "alarm";
  readonly event: "cleared" | "raised";
  readonly step: number;
  readonly alarm: string;
  readonly site: string;
  readonly layer: number;
  readonly head: number;
  readonly figure: RunFigure;
  readonly value: number;
  readonly bound: number;
}

/** A bound of the monitor: the alarm of that name is raised where a figure crosses it. */
export interface Bound {
  readonly name: string;
  readonly figure: string;
  readonly raise_at: number;
  readonly above: boolean;
  readonly clear_at: Real;
}

/**
 * A capture as plain data: limelight/views/bundle.py says what fits in.
 *
 * `maps` has one array a site, [heads, rows, columns].
 */
export interface BundleData {
  readonly format: "limelight.bundle";
  readonly version: number;
  readonly title: string;
  readonly precision: "float16" | "float32";
  readonly batch: number;
  readonly capture: BundledCapture;
  readonly health: HealthTable;
  readonly findings: readonly Finding[];
  readonly kinds: readonly KindScores[];
  readonly maps: readonly Packed[];
  readonly vectors: Held;
}

/** With the picture a vision model saw, as an address that holds it. */
export interface BundledCapture {
  readonly id: string;
  readonly origin: "folder" | "made" | "shipped";
  readonly title: string;
  readonly model: string;
  readonly text: string;
  readonly layers: number;
  readonly heads: number;
  readonly tokens: number;
  readonly image: boolean;
  readonly story: Story | null;
  readonly source: Readonly<Record<string, unknown>>;
  readonly key_tokens: readonly (readonly string[])[];
  readonly query_tokens: readonly (readonly string[])[];
  readonly grid: readonly [number, number] | null;
  readonly grid_start: number;
  readonly sites: readonly SiteInfo[];
  readonly picture: string | null;
}

/**
 * Everything of a capture but its numbers.
 *
 * The texts have one list for each batch entry; `grid` is rows and columns of patches, where the
 * capture is of an image, and `grid_start` the keys before the first patch.
 */
export interface CaptureInfo {
  readonly id: string;
  readonly origin: "folder" | "made" | "shipped";
  readonly title: string;
  readonly model: string;
  readonly text: string;
  readonly layers: number;
  readonly heads: number;
  readonly tokens: number;
  readonly image: boolean;
  readonly story: Story | null;
  readonly source: Readonly<Record<string, unknown>>;
  readonly key_tokens: readonly (readonly string[])[];
  readonly query_tokens: readonly (readonly string[])[];
  readonly grid: readonly [number, number] | null;
  readonly grid_start: number;
  readonly sites: readonly SiteInfo[];
}

/** What stands in a list of captures; `id` is used in addresses. */
export interface CaptureSummary {
  readonly id: string;
  readonly origin: "folder" | "made" | "shipped";
  readonly title: string;
  readonly model: string;
  readonly text: string;
  readonly layers: number;
  readonly heads: number;
  readonly tokens: number;
  readonly image: boolean;
  readonly story: Story | null;
}

/** One weight with all that goes into it, at any length. */
export interface CellData {
  readonly row: number;
  readonly column: number;
  readonly head: number;
  readonly batch: number;
  readonly query_token: string;
  readonly key_token: string;
  readonly query: readonly Real[];
  readonly key: readonly Real[];
  readonly products: readonly Real[];
  readonly raw: Real;
  readonly scale: Real;
  readonly scaled: Real;
  readonly softcap: Real;
  readonly capped: Real;
  readonly bias: Real;
  readonly biased: Real;
  readonly allowed: boolean;
  readonly logit: Real;
  readonly row_max: Real;
  readonly exponential: Real;
  readonly row_sum: Real;
  readonly weight: Real;
  readonly value: readonly Real[] | null;
  readonly contribution: readonly Real[] | null;
}

/** What QKClip did after one step. */
export interface ClipLine {
  readonly kind: "clip";
  readonly step: number;
  readonly limit: number;
  readonly heads: readonly ClippedHead[];
}

/** A head that was scaled back: its logits, the largest `max_logit`, became `factor` times. */
export interface ClippedHead {
  readonly site: string;
  readonly head: number;
  readonly max_logit: number;
  readonly factor: number;
}

/** A file that should hold a capture, and why it cannot be opened. */
export interface Damaged {
  readonly id: string;
  readonly why: string;
}

/**
 * Two heads beside one another: the positions that both texts have, pair by pair.
 *
 * The tokens name each pair; `change` is how much of its attention a row gives elsewhere in the
 * second head, on average.
 */
export interface DifferenceInfo {
  readonly query_tokens: readonly string[];
  readonly key_tokens: readonly string[];
  readonly first_queries: readonly number[];
  readonly second_queries: readonly number[];
  readonly first_keys: readonly number[];
  readonly second_keys: readonly number[];
  readonly change: Real;
}

export interface ExerciseInfo {
  readonly level: number;
  readonly seed: number;
  readonly d_k: number;
  readonly query: readonly number[];
  readonly keys: readonly (readonly number[])[];
  readonly values: readonly (readonly number[])[];
  readonly position: Real;
  readonly allowed: readonly boolean[];
  readonly steps: readonly StepInfo[];
  readonly levels: readonly LevelInfo[];
}

export interface FeedbackInfo {
  readonly step: Step;
  readonly verdict: "mistake" | "right" | "rounding" | "unreadable" | "wrong";
  readonly kind: string;
  readonly says: string;
  readonly instead: string;
  readonly numbers: readonly boolean[];
  readonly exact: readonly number[];
  readonly right: boolean;
}

/** `lit` is the end that is drawn bright; `scale` is null where it is taken from the numbers. */
export interface FigureKind {
  readonly name: Figure;
  readonly title: string;
  readonly meaning: string;
  readonly lit: "high" | "low";
  readonly scale: readonly [number, number] | null;
}

/**
 * What was found of one head: its known kinds, a sentence, and whether something is wrong.
 *
 * `cell` is the one to look at first, of the heads to look at first.
 */
export interface Finding {
  readonly site: number;
  readonly head: number;
  readonly kinds: readonly string[];
  readonly wrong: boolean;
  readonly why: string;
  readonly cell: readonly [number, number] | null;
}

/** The vectors of one head; in the mask true is "may attend", and null is everything. */
export interface HeadRows {
  readonly query: readonly (readonly Real[])[];
  readonly key: readonly (readonly Real[])[];
  readonly value: readonly (readonly Real[])[] | null;
  readonly scale: Real;
  readonly softcap: Real;
  readonly sink: Real;
  readonly mask: readonly (readonly boolean[])[] | null;
  readonly query_tokens: readonly string[];
  readonly key_tokens: readonly string[];
}

/** figure → [site][head]; null where no row gives one. */
export interface HealthTable {
  readonly layers: readonly number[];
  readonly heads: number;
  readonly figures: Readonly<Record<Figure, readonly (readonly Real[])[]>>;
  readonly verdicts: readonly (readonly Verdict[])[];
}

/** Arrays by name, and by "site.head" which of them are a head's. */
export interface Held {
  readonly arrays: Readonly<Record<string, Packed>>;
  readonly heads: Readonly<Record<string, Vectors>>;
}

/** An exercise as the studio sends it, and how the page checks it. */
export interface HeldExercise {
  readonly info: unknown;
  readonly marking: Readonly<Record<string, StepMarking>>;
}

export interface JourneyGuess {
  readonly token: string;
  readonly probability: number;
}

export interface JourneyInfo {
  readonly tokens: readonly string[];
  readonly stops: readonly JourneyStop[];
}

/** After one part of the way; the embedding's layer is −1. */
export interface JourneyStop {
  readonly layer: number;
  readonly part: "attention" | "embedding" | "feed-forward";
  readonly added: number;
  readonly size: number;
  readonly guesses: readonly JourneyGuess[];
}

/**
 * A known kind of head: what such a head does, and how much each head does it.
 *
 * `scores` and `chance` (what an even head would score) are [site][head], null where no row can
 * be judged; `rows` is how many were.
 */
export interface KindScores {
  readonly name: string;
  readonly title: string;
  readonly meaning: string;
  readonly threshold: number;
  readonly scores: readonly (readonly Real[])[];
  readonly chance: readonly (readonly Real[])[];
  readonly rows: readonly (readonly number[])[];
}

/**
 * part     the one part that is shown; null: all of them
 * home     where the whole course is, beside a page of one part; null: nowhere
 * address  where the page opens when its own address says nothing, as #/learn/lab?lab.d_k=64
 * answers  by path, what the studio would send
 */
export interface LessonsData {
  readonly part: string | null;
  readonly home: string | null;
  readonly address: string;
  readonly answers: Readonly<Record<string, unknown>>;
  readonly exercises: readonly HeldExercise[];
  readonly mistakes: readonly MistakeText[];
}

export interface LevelInfo {
  readonly level: number;
  readonly summary: string;
}

/** The strongest keys of each row: three lists of equal length. */
export interface LinesData {
  readonly rows: readonly number[];
  readonly columns: readonly number[];
  readonly weights: readonly Real[];
}

/** What each head's absence does to the log-probability of the answer: layers down. */
export interface LiveEffects {
  readonly answer: string;
  readonly before: number;
  readonly change: readonly (readonly number[])[];
}

/** A token that may come next; `before` is its probability with every head on. */
export interface LiveGuess {
  readonly id: number;
  readonly token: string;
  readonly whole: boolean;
  readonly probability: number;
  readonly before: number;
}

export interface LiveModel {
  readonly id: string;
  readonly title: string;
  readonly example: string;
  readonly missing: string | null;
}

export interface LiveRun {
  readonly capture: string;
  readonly text: string;
  readonly tokens: readonly string[];
  readonly next: readonly LiveGuess[];
}

/** One large weight of the last token, and what hiding it changes. */
export interface LookInfo {
  readonly layer: number;
  readonly head: number;
  readonly key: number;
  readonly weight: number;
  readonly brought: number;
  readonly change: number;
}

export interface LooksInfo {
  readonly tokens: readonly string[];
  readonly answer: string;
  readonly probability: number;
  readonly looks: readonly LookInfo[];
}

/** A head that is worth seeing, the cell that shows it, what it does, and what to see of it. */
export interface Mention {
  readonly site: number;
  readonly head: number;
  readonly cell: readonly [number, number];
  readonly words: string;
  readonly why: string;
}

export interface MistakeText {
  readonly kind: string;
  readonly says: string;
  readonly instead: string;
}

export interface ModelInfo {
  readonly id: string;
  readonly title: string;
  readonly takes: "image" | "text";
}

export interface Models {
  readonly missing: string | null;
  readonly models: readonly ModelInfo[];
}

export interface OfCheck {
  readonly seed: number;
  readonly level: number;
  readonly step: Step;
  readonly answer: readonly string[];
}

export interface OfStep {
  readonly seed: number;
  readonly level: number;
  readonly step: Step;
}

/** An array as base64 of zlib of little-endian numbers. */
export interface Packed {
  readonly dtype: "f2" | "f4" | "u1" | "u2";
  readonly shape: readonly number[];
  readonly data: string;
}

/** What every error answer holds. */
export interface Problem {
  readonly error: string;
}

export interface QuizQuestion {
  readonly name: string;
  readonly text: string;
  readonly options: readonly string[];
  readonly right: number;
  readonly says: readonly string[];
}

/** An answer that someone may reach, and what is said of it: how, or which mistake it is. */
export interface Reached {
  readonly numbers: readonly number[];
  readonly says: string;
}

export interface RemedyResults {
  readonly facts: ScalingFacts;
  readonly remedies: Readonly<Record<string, string>>;
  readonly rates: readonly number[];
  readonly steps: readonly number[];
  readonly runs: readonly RemedyRun[];
}

/** One run; `largest` is the largest logit of any head, over the steps. */
export interface RemedyRun {
  readonly remedy: string;
  readonly rate: number;
  readonly seed: number;
  readonly died: readonly string[];
  readonly held_out: Real;
  readonly most: Real;
  readonly largest: readonly Real[];
}

export interface RunInfo {
  readonly id: string;
  readonly model: string;
  readonly started: Real;
  readonly every: Real;
  readonly records: number;
  readonly first_step: Real;
  readonly last_step: Real;
  readonly ended: string | null;
  readonly restarts: readonly number[];
  readonly heads: number;
  readonly sites: readonly SiteOfRun[];
  readonly bounds: readonly Bound[];
  readonly events: readonly AlarmLine[];
  readonly alarms: readonly Alarm[];
  readonly clips: readonly ClipLine[];
  readonly clipped: number;
}

export interface RunSummary {
  readonly id: string;
  readonly title: string | null;
  readonly bytes: number;
  readonly changed: number;
}

/** values[head][column]; column c covers the records from steps[c] to last_steps[c]. */
export interface RunView {
  readonly figure: RunFigure;
  readonly records: number;
  readonly steps: readonly number[];
  readonly last_steps: readonly number[];
  readonly values: readonly (readonly Real[])[];
  readonly loss: readonly Real[];
  readonly lr: readonly Real[];
}

/** What the models and their training had in common. */
export interface ScalingFacts {
  readonly steps: number;
  readonly seeds: number;
  readonly width: number;
  readonly heads: number;
  readonly layers: number;
  readonly length: number;
  readonly batch: number;
}

export interface ScalingResults {
  readonly facts: ScalingFacts;
  readonly figures: Readonly<Record<TrainingFigure, string>>;
  readonly settings: Readonly<Record<string, string>>;
  readonly scales: readonly string[];
  readonly sizes: readonly number[];
  readonly runs: readonly ScalingRuns[];
}

/** Runs that differ in their seed alone; each figure is [seed][recorded step]. */
export interface ScalingRuns {
  readonly setting: string;
  readonly scale: string;
  readonly d_k: number;
  readonly steps: readonly number[];
  readonly loss: readonly (readonly Real[])[];
  readonly score_gradient: readonly (readonly Real[])[];
  readonly spread: readonly (readonly Real[])[];
  readonly saturated: readonly (readonly Real[])[];
  readonly held_out: readonly Real[];
}

/** One head that looks from a query to a key: where, and with how much of its attention. */
export interface Sighting {
  readonly site: number;
  readonly layer: number;
  readonly head: number;
  readonly row: number;
  readonly column: number;
  readonly query: string;
  readonly key: string;
  readonly weight: number;
}

/** One row of the grid: figure → one number a head. */
export interface SiteHealth {
  readonly site: number;
  readonly figures: Readonly<Record<Figure, readonly Real[]>>;
  readonly verdicts: readonly Verdict[];
}

/** One place in a model where attention happens. */
export interface SiteInfo {
  readonly index: number;
  readonly name: string;
  readonly layer: number;
  readonly kind: "cross" | "self";
  readonly batch: number;
  readonly heads: number;
  readonly key_heads: number;
  readonly queries: number;
  readonly keys: number;
  readonly head_size: number;
  readonly value_size: number;
  readonly writes: boolean;
  readonly scale: Real;
  readonly softcap: Real;
  readonly sinks: boolean;
  readonly bias: boolean;
  readonly only_weights: boolean;
  readonly mask: string;
}

export interface SiteOfRun {
  readonly name: string;
  readonly layer: number;
  readonly heads: number;
  readonly first: number;
}

export interface Solution {
  readonly step: Step;
  readonly exact: readonly number[];
  readonly working: readonly string[];
}

export interface StepInfo {
  readonly step: Step;
  readonly question: string;
  readonly options: readonly string[];
  readonly hints: readonly string[];
}

/**
 * One step: its answer and arithmetic; and how an answer to it is told right from wrong.
 *
 * right     said of an answer that is the exact one, and of one that rounds to it
 * paper     answers that follow from rounded numbers, and what is said of them
 * slack     how far each number may be off and still be a matter of rounding
 * wrong     answers that mistakes lead to, each with the mistake's kind for what it says
 * choices   of a step with options: what check() says of each, as {verdict, kind, says, instead}
 */
export interface StepMarking {
  readonly exact: readonly number[];
  readonly working: readonly string[];
  readonly right: readonly string[];
  readonly paper: readonly Reached[];
  readonly slack: readonly number[];
  readonly wrong: readonly Reached[];
  readonly choices: readonly (Readonly<Record<string, unknown>>)[];
}

/**
 * What a capture that comes along shows; `page` of the docs tells it in full.
 *
 * `beside` is a capture to put beside it; `cosines` say how alike the vectors of `word` are in
 * the two, in the embeddings and after each layer.
 */
export interface Story {
  readonly words: string;
  readonly page: string;
  readonly mentions: readonly Mention[];
  readonly beside: string | null;
  readonly word: string | null;
  readonly cosines: readonly number[];
}

/**
 * One row (a query over its keys) or one column (a key under its queries) of the weights.
 *
 * `values` are coded as those of a tile, a weight that is not a number as null; pooled by the
 * maximum where the line is long. `total` is 1 for a row, less what a sink takes; for a column
 * what the key is given in all.
 */
export interface StripData {
  readonly side: Side;
  readonly index: number;
  readonly token: string;
  readonly length: number;
  readonly values: readonly Real[];
  readonly top: readonly Top[];
  readonly total: Real;
}

export interface SurveyDistance {
  readonly words: string;
  readonly share: number;
}

/** A text in which a head is strongest at what a kind does. */
export interface SurveyExample {
  readonly kind: string;
  readonly score: number;
  readonly name: string;
  readonly text: string;
}

/**
 * One head over all texts.
 *
 * `pattern` is [query's place][key's place], shares of a row; `histogram` counts rows by their
 * largest weight, in even steps from 0 to 1.
 */
export interface SurveyHead {
  readonly kinds: readonly SurveyKind[];
  readonly distances: readonly SurveyDistance[];
  readonly places: readonly string[];
  readonly pattern: readonly (readonly Real[])[];
  readonly tokens: readonly SurveyToken[];
  readonly histogram: readonly number[];
  readonly examples: readonly SurveyExample[];
}

/** All heads of a survey. */
export interface SurveyInfo {
  readonly id: string;
  readonly model: string;
  readonly texts: number;
  readonly tokens: number;
  readonly cut: number;
  readonly layers: number;
  readonly heads: number;
  readonly sites: readonly string[];
  readonly health: HealthTable;
  readonly kinds: readonly KindScores[];
  readonly named: readonly (readonly (readonly string[])[])[];
}

/** How much a head does what a kind does, the error of that, and what even attention would. */
export interface SurveyKind {
  readonly title: string;
  readonly meaning: string;
  readonly score: number;
  readonly error: Real;
  readonly chance: number;
  readonly rows: number;
  readonly named: boolean;
}

/** What stands in a list of surveys; `id` is used in addresses. */
export interface SurveySummary {
  readonly id: string;
  readonly model: string;
  readonly texts: number;
  readonly tokens: number;
  readonly cut: number;
  readonly layers: number;
  readonly heads: number;
}

export interface SurveyToken {
  readonly token: string;
  readonly share: number;
  readonly mean: number;
  readonly seen: number;
}

export interface ToFollow {
  readonly text: string;
  readonly replace?: boolean;
}

export interface ToLook {
  readonly text: string;
}

export interface ToMake {
  readonly model: string;
  readonly text?: string | null;
  readonly image?: string | null;
}

export interface ToMeasure {
  readonly model: string;
  readonly text: string;
}

export interface ToRun {
  readonly model: string;
  readonly text: string;
  readonly off?: readonly (readonly number[])[];
  readonly next?: number;
}

export interface Top {
  readonly index: number;
  readonly token: string;
  readonly weight: Real;
}

/** The names of one head's arrays; a mask is one bit a cell. */
export interface Vectors {
  readonly query: string;
  readonly key: string;
  readonly sink: Real;
  readonly value?: string | null;
  readonly mask?: string | null;
  readonly bias?: string | null;
}

export const TILE_SIDE = 256;
export const HIDDEN = -1.0;
export const HIDDEN_16 = 65535;
export const NAN_16 = 65534;
export const LIT_16 = 65533;
export const HIDDEN_WORD = "hidden";
export const NAN_WORD = "not a number";
export const LEAST = 0.02;
export const PEAKED = 0.8;
export const SATURATED = 0.95;
export const HIDDEN_CHANGE = -2.0;
export const LANGUAGES = {"en": "English", "de": "Deutsch", "es": "Español"};

export const FIGURES: readonly FigureKind[] = [
  {"name": "saturated", "title": "Saturated rows", "meaning": "share of rows whose largest weight is at least 0.95", "lit": "high", "scale": [0.0, 1.0]},
  {"name": "max_prob", "title": "Largest weight", "meaning": "mean of each row’s largest weight", "lit": "high", "scale": [0.0, 1.0]},
  {"name": "peaked", "title": "Peaked rows", "meaning": "share of rows whose largest weight is from 0.80 to 0.95", "lit": "high", "scale": [0.0, 1.0]},
  {"name": "max_logit", "title": "Largest logit", "meaning": "the largest logit of any row", "lit": "high", "scale": null},
  {"name": "entropy", "title": "Entropy", "meaning": "mean entropy of the rows, in nats", "lit": "low", "scale": null},
  {"name": "spread", "title": "Spread", "meaning": "entropy as a share of the most it could be", "lit": "low", "scale": [0.0, 1.0]},
  {"name": "effective_keys", "title": "Effective keys", "meaning": "how many evenly used keys would be as spread", "lit": "low", "scale": null},
  {"name": "gradient", "title": "Gradient p·(1−p)", "meaning": "how much the top weight still moves with its logit; small also where a row is spread wide", "lit": "low", "scale": [0.0, 0.25]},
  {"name": "not_a_number", "title": "Rows not a number", "meaning": "how many rows are NaN", "lit": "high", "scale": null},
];
export const RUN_FIGURES: readonly RunFigure[] = ["max_logit", "max_prob", "entropy", "spread", "peaked", "saturated", "not_a_number"];
