/** What Explore asks of the server beyond $lib/api: single sites, strips, lines, findings, making a capture. */
import {
  get, getFloats, headPath, post,
  type CaptureSummary, type Damaged, type DifferenceInfo, type Finding, type KindScores, type LinesData, type LiveEffects, type LiveModel, type LiveRun, type Models, type Side, type Sighting, type SiteHealth, type StripData, type ToMake, type ToMeasure, type ToRun,
} from "$lib/api";

import { againstQuery, type Against } from "$lib/source";
import type { HeadAt } from "./provider";

const part = encodeURIComponent;

export const getDamaged = (signal?: AbortSignal): Promise<Damaged[]> => get("/api/damaged", signal);

export const getSiteHealth = (id: string, site: number, batch: number, signal?: AbortSignal): Promise<SiteHealth> =>
  get(`/api/captures/${part(id)}/sites/${site}/health?batch=${batch}`, signal);

export const getFindings = (id: string, batch: number, signal?: AbortSignal): Promise<Finding[]> =>
  get(`/api/captures/${part(id)}/findings?batch=${batch}`, signal);

export const getKinds = (id: string, batch: number, signal?: AbortSignal): Promise<KindScores[]> =>
  get(`/api/captures/${part(id)}/kinds?batch=${batch}`, signal);

export const getSightings = (id: string, batch: number, row: number, column: number, signal?: AbortSignal): Promise<Sighting[]> =>
  get(`/api/captures/${part(id)}/sightings?row=${row}&column=${column}&batch=${batch}`, signal);

/** Of one head, of a site's heads on average, or of all. */
export async function getLight(
  id: string, batch: number, side: Side, index: number, of: Partial<HeadAt> & { readonly rollout?: boolean }, signal?: AbortSignal,
): Promise<Float32Array> {
  const whose = Object.entries(of).map(([name, value]) => `&${name}=${value}`).join("");
  return (await getFloats(`/api/captures/${part(id)}/light?side=${side}&index=${index}&batch=${batch}${whose}`, signal)).values;
}

export const getDifference = (first: Against, second: Against, signal?: AbortSignal): Promise<DifferenceInfo> =>
  get(`${headPath(first.capture, first.site, first.head)}/against?${new URLSearchParams(againstQuery(first, second))}`, signal);

export const getStrip = (
  id: string, site: number, head: number, batch: number, side: Side, index: number, signal?: AbortSignal,
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

export const getModels = (signal?: AbortSignal): Promise<Models> => get("/api/models", signal);

export const makeCapture = (asked: ToMake, signal?: AbortSignal): Promise<CaptureSummary> =>
  post("/api/captures", asked, signal);

export const getLive = (signal?: AbortSignal): Promise<LiveModel[]> => get("/api/live", signal);

export const runLive = (asked: ToRun, signal?: AbortSignal): Promise<LiveRun> => post("/api/live/run", asked, signal);

export const getEffects = (asked: ToMeasure, signal?: AbortSignal): Promise<LiveEffects> =>
  post("/api/live/effects", asked, signal);
