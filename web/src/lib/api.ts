/**
 * Calling the studio's server. What its routes take and give is generated from Python: $lib/schema.
 *
 * Plain JSON, snake_case as in Python. An error is a 4xx whose body is {"error": "…"}: the library's
 * own message, shown as it is.
 */
import type {
  CaptureInfo, CaptureSummary, CellData, ExerciseInfo, FeedbackInfo, HeadRows, HealthTable, JourneyInfo, LooksInfo, OfCheck, OfStep,
  QuizQuestion, RemedyResults, ScalingResults, Solution, ToFollow, ToLook,
} from "./schema";
import { forget, HEADER, secret } from "./tab";

export type * from "./schema";
export type { ExerciseInfo as Exercise, FeedbackInfo as Feedback, OfCheck as CheckRequest } from "./schema";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** What answers where there is no studio: a file with lessons, which holds what they ask for. */
export interface Stand {
  get(path: string): unknown;
  post(path: string, body: unknown): unknown;
}
let stand: Stand | null = null;

/** Have this answer instead of a studio; once, when the page starts. */
export function answerWith(one: Stand): void {
  stand = one;
}

/** What a page without a studio says of something that needs one. */
export const NEEDS_STUDIO = "This needs limelight running beside it: `limelight studio` opens it.";

/** Asks the studio; what goes wrong is an error whose message can be shown. */
async function ask(path: string, signal?: AbortSignal, more: RequestInit = {}): Promise<Response> {
  if (stand) throw new ApiError(0, NEEDS_STUDIO);
  const send = (held: string): Promise<Response> => {
    const headers = { ...more.headers, [HEADER]: held };
    const sent = { credentials: "same-origin" as const, ...more, headers, ...(signal ? { signal } : {}) };
    return fetch(path, sent).catch((error: unknown) => {
      throw signal?.aborted ? error : new ApiError(0, "The studio does not answer. Is it still running?");
    });
  };
  const held = await secret();
  let response = await send(held);
  if (response.status === 401 && held) {
    forget(held);
    const other = await secret();
    if (other) response = await send(other);
  }
  if (response.ok) return response;
  const said = toldIn(await response.text().catch(() => ""));
  throw new ApiError(response.status, said ?? `The server answered ${response.status}.`);
}

/** The sentence in an error's body: {"error": "…"} of a route, "limelight: …" of the guard before them. */
function toldIn(text: string): string | null {
  if (text.startsWith("limelight: ")) return text.slice("limelight: ".length).trim();
  try {
    const body: unknown = JSON.parse(text);
    return body && typeof body === "object" && "error" in body ? String(body.error) : null;
  } catch {
    return null;
  }
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (stand ? stand.get(path) : await (await ask(path, signal)).json()) as T;
}

/** Numbers, and of which cells they are: "from:to,from:to" of rows and columns. */
export async function getFloats(path: string, signal?: AbortSignal): Promise<{ values: Float32Array; cells: string }> {
  const answer = await ask(path, signal);
  return { values: new Float32Array(await answer.arrayBuffer()), cells: answer.headers.get("X-Cells") ?? "" };
}

/** A file that the studio makes, as an address for an image or a link: those cannot send a header. */
export async function getFile(path: string, signal?: AbortSignal): Promise<string> {
  return URL.createObjectURL(await (await ask(path, signal)).blob());
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const sent = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return (stand ? stand.post(path, body) : await (await ask(path, signal, sent)).json()) as T;
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

export const getExercise = (seed: number, level: number, signal?: AbortSignal): Promise<ExerciseInfo> =>
  get(`/api/exercise?seed=${seed}&level=${level}`, signal);

export const checkExercise = (request: OfCheck, signal?: AbortSignal): Promise<FeedbackInfo> =>
  post("/api/exercise/check", request, signal);

export const showExercise = (request: OfStep, signal?: AbortSignal): Promise<Solution> =>
  post("/api/exercise/show", request, signal);

export const getQuiz = (signal?: AbortSignal): Promise<QuizQuestion[]> => get("/api/quiz", signal);

export const getScaling = (signal?: AbortSignal): Promise<ScalingResults> => get("/api/experiments/scaling", signal);

export const getRemedies = (signal?: AbortSignal): Promise<RemedyResults> => get("/api/experiments/remedies", signal);

export const getJourney = (asked: ToFollow, signal?: AbortSignal): Promise<JourneyInfo> => post("/api/learn/journey", asked, signal);

export const getLooks = (asked: ToLook, signal?: AbortSignal): Promise<LooksInfo> => post("/api/learn/looks", asked, signal);
