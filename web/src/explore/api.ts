/**
 * What Explore asks of the server beyond $lib/api: single sites, strips, lines, kinds, making a
 * capture. Shapes as in limelight/studio/api/.
 */
import { get, headPath, post, type CaptureSummary, type Figure, type Real } from "$lib/api";

/** GET /api/captures/{id}/sites/{site}/health?batch=0 */
export interface SiteHealth {
  readonly site: number;
  readonly figures: Readonly<Record<Figure, readonly Real[]>>;
  readonly verdicts: readonly string[];
}

export interface Top {
  readonly index: number;
  readonly token: string;
  readonly weight: Real;
}

/** GET …/strip?side=row&index=3 */
export interface StripData {
  readonly side: "row" | "column";
  readonly index: number;
  readonly token: string;
  readonly length: number;
  /** Whole up to 4,096, else in 512 bins by the maximum; null where nothing is allowed. */
  readonly values: readonly Real[];
  readonly top: readonly Top[];
  readonly total: Real;
}

/** GET …/lines?rows=0:48&k=4 : three lists of equal length. */
export interface LinesData {
  readonly rows: readonly number[];
  readonly columns: readonly number[];
  readonly weights: readonly Real[];
}

/** GET /api/captures/{id}/kinds?batch=0 : "site.head" → the kinds it is known to be. */
export type Kinds = Readonly<Record<string, readonly string[]>>;

const part = encodeURIComponent;

/** A file in a folder that should hold a capture and cannot be opened. */
export interface Damaged {
  readonly id: string;
  readonly why: string;
}

export const getDamaged = (signal?: AbortSignal): Promise<Damaged[]> => get("/api/damaged", signal);

export const getSiteHealth = (id: string, site: number, batch: number, signal?: AbortSignal): Promise<SiteHealth> =>
  get(`/api/captures/${part(id)}/sites/${site}/health?batch=${batch}`, signal);

export const getKinds = (id: string, batch: number, signal?: AbortSignal): Promise<Kinds> =>
  get(`/api/captures/${part(id)}/kinds?batch=${batch}`, signal);

export const getStrip = (
  id: string, site: number, head: number, batch: number, side: "row" | "column", index: number, signal?: AbortSignal,
): Promise<StripData> =>
  get(`${headPath(id, site, head)}/strip?side=${side}&index=${index}&batch=${batch}`, signal);

export const getLines = (
  id: string, site: number, head: number, batch: number, rows: readonly [number, number], k: number, signal?: AbortSignal,
): Promise<LinesData> =>
  get(`${headPath(id, site, head)}/lines?rows=${rows[0]}:${rows[1]}&k=${k}&batch=${batch}`, signal);

export const imagePath = (id: string, batch: number): string =>
  `/api/captures/${part(id)}/image?batch=${batch}`;

export const reportPath = (id: string, batch: number): string =>
  `/api/captures/${part(id)}/report?batch=${batch}`;

/** GET /api/models */
export interface Models {
  /** Why no capture can be made here; null where it can. */
  readonly missing: string | null;
  readonly models: readonly Model[];
}

export interface Model {
  readonly id: string;
  readonly title: string;
  readonly takes: "text" | "image";
}

export interface MakeCapture {
  readonly model: string;
  readonly text?: string;
  /** A picture file as base64. */
  readonly image?: string;
}

export const getModels = (signal?: AbortSignal): Promise<Models> => get("/api/models", signal);

export const makeCapture = (asked: MakeCapture, signal?: AbortSignal): Promise<CaptureSummary> =>
  post("/api/captures", asked, signal);
