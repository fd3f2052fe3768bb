/**
 * The contract between studio server and pages: what a route takes and gives. Those that one page alone
 * asks for stand in explore/api.ts and watch/api.ts.
 *
 * Plain JSON, snake_case as in Python. A number that is not finite travels as null (JSON has no
 * NaN or infinity), as in the library's to_dict(). An error is a 4xx whose body is {"error": "…"}: the
 * library's own message, shown as it is.
 */

/** A float that may not be finite, as it travels. */
export type Real = number | null;

// --- GET /api/captures : CaptureSummary[]  (the shipped ones first) --------------------------------

export interface CaptureSummary {
  /** Used in addresses: "llama", "gpt", "bert", "code", "vit", or a file's name. */
  readonly id: string;
  readonly origin: "shipped" | "folder" | "made";
  readonly title: string;
  readonly model: string;
  readonly text: string;
  readonly layers: number;
  readonly heads: number;
  readonly tokens: number;
  readonly image: boolean;
}

// --- GET /api/captures/{id} : CaptureInfo ----------------------------------------------------------

export interface CaptureInfo extends CaptureSummary {
  readonly source: Readonly<Record<string, unknown>>;
  /** One list for each batch entry. */
  readonly key_tokens: readonly (readonly string[])[];
  readonly query_tokens: readonly (readonly string[])[];
  /** Rows × columns of patches, where the capture is of an image. */
  readonly grid: readonly [number, number] | null;
  /** Keys before the first patch, such as a class token. */
  readonly grid_start: number;
  readonly sites: readonly SiteInfo[];
}

export interface SiteInfo {
  readonly index: number;
  readonly name: string;
  readonly layer: number;
  readonly kind: "self" | "cross";
  readonly batch: number;
  readonly heads: number;
  readonly key_heads: number;
  readonly queries: number;
  readonly keys: number;
  readonly head_size: number;
  readonly value_size: number;
  readonly scale: number;
  readonly softcap: number | null;
  readonly sinks: boolean;
  readonly bias: boolean;
  readonly mask: string;
}

// --- GET /api/captures/{id}/sites/{site}/heads/{head}/rows?batch=0 : HeadRows ----------------------
// The vectors of one head, for lengths that a person reads (up to 256 tokens; longer is a 400).

export interface HeadRows {
  readonly query: readonly (readonly number[])[];
  readonly key: readonly (readonly number[])[];
  readonly value: readonly (readonly number[])[] | null;
  readonly scale: number;
  readonly softcap: number | null;
  readonly sink: number | null;
  /** True = may attend; null = everything. */
  readonly mask: readonly (readonly boolean[])[] | null;
  readonly query_tokens: readonly string[];
  readonly key_tokens: readonly string[];
}

// --- GET /api/captures/{id}/sites/{site}/heads/{head}/cells/{row}/{column}?batch=0 : CellData ------
// limelight.cell.Cell.to_dict(), at any length.

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
  readonly softcap: Real | null;
  readonly capped: Real;
  readonly bias: Real | null;
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

// --- GET /api/captures/{id}/sites/{site}/heads/{head}/tile -----------------------------------------
//     ?rows=0:4096&columns=0:4096&height=256&width=256&pool=max&batch=0
// application/octet-stream: height × width little-endian float32, NaN where no cell is allowed.
// See $lib/source.ts.

// --- GET /api/captures/{id}/health?batch=0 : HealthTable -------------------------------------------

export type Figure =
  | "max_logit" | "max_prob" | "gradient" | "entropy" | "spread" | "effective_keys" | "peaked" | "saturated";

export interface HealthTable {
  readonly layers: readonly number[];
  readonly heads: number;
  /** figure → [site][head]; null where no row gives one. */
  readonly figures: Readonly<Record<Figure, readonly (readonly (number | null)[])[]>>;
  readonly verdicts: readonly (readonly string[])[];
}

// --- GET /api/exercise?seed=1&level=1 : Exercise ----------------------------------------------------
// limelight.exercises: Exercise.to_dict() and the levels there are.

export type Step = "raw" | "scaled" | "weights" | "output" | "dominant";

export interface Exercise {
  readonly level: number;
  readonly seed: number;
  readonly d_k: number;
  readonly query: readonly number[];
  readonly keys: readonly (readonly number[])[];
  readonly values: readonly (readonly number[])[];
  /** The key that the query stands on where later ones are hidden; null hides nothing. */
  readonly position: number | null;
  readonly allowed: readonly boolean[];
  readonly steps: readonly { readonly step: Step; readonly question: string; readonly hints: readonly string[] }[];
  readonly levels: readonly { readonly level: number; readonly summary: string }[];
}

// --- POST /api/exercise/check : Feedback.to_dict() -------------------------------------------------

export interface CheckRequest {
  readonly seed: number;
  readonly level: number;
  readonly step: Step;
  /** As typed, one text for each number: "3.54", "hidden". */
  readonly answer: readonly string[];
}

export interface Feedback {
  readonly step: Step;
  readonly verdict: "right" | "rounding" | "mistake" | "wrong" | "unreadable";
  readonly kind: string;
  readonly says: string;
  readonly instead: string;
  /** For each number whether it is right; empty where the answer could not be read. */
  readonly numbers: readonly boolean[];
  /** Given only when the answer is right. */
  readonly exact: readonly number[];
  readonly right: boolean;
}

// --- POST /api/exercise/show {seed, level, step} : Solution ----------------------------------------

export interface Solution {
  readonly step: Step;
  /** Exercise.expected(step). */
  readonly exact: readonly number[];
  /** Exercise.working(step). */
  readonly working: readonly string[];
}

// --- GET /api/quiz : QuizQuestion[] = Question.to_dict(answers=True) -------------------------------

export interface QuizQuestion {
  readonly name: string;
  readonly text: string;
  readonly options: readonly string[];
  readonly right: number;
  readonly says: readonly string[];
}

// --- GET /api/experiments/scaling : ScalingResults = limelight.experiments.scaling() ---------------

export type TrainingFigure = "loss" | "score_gradient" | "spread" | "saturated";

export interface ScalingRuns extends Readonly<Record<TrainingFigure, readonly (readonly Real[])[]>> {
  readonly setting: string;
  readonly scale: string;
  readonly d_k: number;
  readonly steps: readonly number[];
  /** One number for each seed; the figures are [seed][recorded step]. */
  readonly held_out: readonly Real[];
}

export interface ScalingResults {
  readonly facts: Readonly<Record<"steps" | "seeds" | "width" | "heads" | "layers" | "length" | "batch", number>>;
  /** Name → in words. */
  readonly figures: Readonly<Record<TrainingFigure, string>>;
  readonly settings: Readonly<Record<string, string>>;
  readonly scales: readonly string[];
  readonly sizes: readonly number[];
  readonly runs: readonly ScalingRuns[];
}

// --- calling ---------------------------------------------------------------------------------------

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Asks the studio; what goes wrong is an error whose message can be shown. */
async function ask(path: string, signal?: AbortSignal, more: RequestInit = {}): Promise<Response> {
  const response = await fetch(path, { credentials: "same-origin", ...more, ...(signal ? { signal } : {}) }).catch((error: unknown) => {
    throw signal?.aborted ? error : new ApiError(0, "The studio does not answer. Is it still running?");
  });
  if (response.ok) return response;
  const body: unknown = await response.json().catch(() => null);
  const said = body && typeof body === "object" && "error" in body ? String(body.error) : null;
  throw new ApiError(response.status, said ?? `The server answered ${response.status}.`);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, signal)).json()) as T;
}

export async function getFloats(path: string, signal?: AbortSignal): Promise<Float32Array> {
  return new Float32Array(await (await ask(path, signal)).arrayBuffer());
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const sent = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return (await (await ask(path, signal, sent)).json()) as T;
}

const part = (...parts: (string | number)[]): string => parts.map(encodeURIComponent).join("/");

export const headPath = (capture: string, site: number, head: number): string =>
  `/api/captures/${part(capture)}/sites/${site}/heads/${head}`;

export const getCaptures = (signal?: AbortSignal): Promise<CaptureSummary[]> =>
  get("/api/captures", signal);

export const getCapture = (id: string, signal?: AbortSignal): Promise<CaptureInfo> =>
  get(`/api/captures/${part(id)}`, signal);

export const getHealth = (id: string, batch: number, signal?: AbortSignal): Promise<HealthTable> =>
  get(`/api/captures/${part(id)}/health?batch=${batch}`, signal);

export const getHeadRows = (
  id: string, site: number, head: number, batch = 0, signal?: AbortSignal,
): Promise<HeadRows> => get(`${headPath(id, site, head)}/rows?batch=${batch}`, signal);

export const getCell = (
  id: string, site: number, head: number, row: number, column: number, batch = 0, signal?: AbortSignal,
): Promise<CellData> => get(`${headPath(id, site, head)}/cells/${row}/${column}?batch=${batch}`, signal);

export const getExercise = (seed: number, level: number, signal?: AbortSignal): Promise<Exercise> =>
  get(`/api/exercise?seed=${seed}&level=${level}`, signal);

export const checkExercise = (request: CheckRequest, signal?: AbortSignal): Promise<Feedback> =>
  post("/api/exercise/check", request, signal);

export const showExercise = (request: Omit<CheckRequest, "answer">, signal?: AbortSignal): Promise<Solution> =>
  post("/api/exercise/show", request, signal);

export const getQuiz = (signal?: AbortSignal): Promise<QuizQuestion[]> => get("/api/quiz", signal);

export const getScaling = (signal?: AbortSignal): Promise<ScalingResults> => get("/api/experiments/scaling", signal);
