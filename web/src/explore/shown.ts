/** What a reader shows, and its form in an address: a link restores exactly this. */
import type { CaptureInfo, Lit, Pool } from "$lib/api";
import type { Range } from "$lib/source";
import type { HeadAt } from "./provider";
import { byOf, type By } from "./question";

export type Order = "layers" | "found";
export type Light = "head" | "layer" | "all" | "rollout";
export type Way = "out" | "in";
export type Look = "map" | "lines" | "image";
const LIGHTS = ["head", "layer", "all", "rollout"] as const;
export interface CellAt {
  readonly row: number;
  readonly column: number;
}
export interface Window {
  readonly rows: Range;
  readonly columns: Range;
}

export interface Shown {
  readonly at: HeadAt | null;
  /** A second head beside the first, and the capture it is of where that is another. */
  readonly versus: HeadAt | null;
  readonly of: string | null;
  readonly batch: number;
  /** What the heads are coloured by; null is the open cell, and their health where none is. */
  readonly figure: By | null;
  readonly order: Order;
  readonly look: Look;
  /** Whose light falls on the text, and whether it shows what a token looks at or who looks at it. */
  readonly light: Light;
  readonly way: Way;
  /** What a cell of the map is lit by. */
  readonly lit: Lit;
  readonly pool: Pool;
  readonly cell: CellAt | null;
  /** The part of the map in view, in cells and thousandths of them; null is all of it. */
  readonly window: Window | null;
  /** How much brighter than its weight a cell is drawn; null is what suits the length. */
  readonly gain: number | null;
}

export const FIRST: Shown = {
  at: null, versus: null, of: null, batch: 0, figure: null, order: "layers", look: "map", light: "head", way: "out", lit: "weight", pool: "max",
  cell: null, window: null, gain: null,
};

type Query = Readonly<Record<string, string>>;

export function read(query: Query): Shown {
  const at = pair(query["head"], ".");
  const versus = pair(query["with"], ".");
  const cell = pair(query["cell"], ".");
  const rows = pair(query["rows"], "-", amount);
  const columns = pair(query["columns"], "-", amount);
  const gain = Number(query["gain"]);
  return {
    at: at && { site: at[0], head: at[1] },
    versus: versus && { site: versus[0], head: versus[1] },
    of: versus && query["of"] ? query["of"].slice(0, 400) : null,
    batch: count(query["batch"]) ?? 0,
    figure: byOf(query["figure"]),
    order: query["order"] === "found" ? "found" : "layers",
    look: query["look"] === "lines" || query["look"] === "image" ? query["look"] : "map",
    light: LIGHTS.find((light) => light === query["light"]) ?? "head",
    way: query["way"] === "in" ? "in" : "out",
    lit: query["lit"] === "value" ? "value" : "weight",
    pool: query["pool"] === "mean" ? "mean" : "max",
    cell: cell && { row: cell[0], column: cell[1] },
    window: rows && columns && rows[0] < rows[1] && columns[0] < columns[1] ? { rows, columns } : null,
    gain: gain >= 1 && gain <= MOST_GAIN ? gain : null,
  };
}

/** What of it a capture has: a head, a cell or an entry that is not there was not asked for. */
export function fitted(shown: Shown, { sites }: Pick<CaptureInfo, "sites">): Shown {
  const { batch, cell } = shown;
  const there = (at: HeadAt | null): HeadAt | null => (at && at.head < (sites[at.site]?.heads ?? 0) ? at : null);
  const at = there(shown.at);
  const around = sites.filter(({ index }) => !at || index === at.site);
  return {
    ...shown,
    at,
    versus: shown.of === null ? there(shown.versus) : shown.versus,
    batch: sites.some((site) => batch < site.batch) ? batch : FIRST.batch,
    cell: cell && around.some(({ queries, keys }) => cell.row < queries && cell.column < keys) ? cell : null,
  };
}

/** Only what differs from the first sight is written. */
export function write(shown: Shown): Record<string, string | null> {
  const { at, versus, cell, window } = shown;
  const unless = <T>(value: T, first: T): string | null => (value === first ? null : String(value));
  return {
    head: at && `${at.site}.${at.head}`,
    with: versus && `${versus.site}.${versus.head}`,
    of: versus && shown.of,
    batch: unless(shown.batch, FIRST.batch),
    figure: unless(shown.figure, FIRST.figure),
    order: unless(shown.order, FIRST.order),
    look: unless(shown.look, FIRST.look),
    light: unless(shown.light, FIRST.light),
    way: unless(shown.way, FIRST.way),
    lit: unless(shown.lit, FIRST.lit),
    pool: unless(shown.pool, FIRST.pool),
    cell: cell && `${cell.row}.${cell.column}`,
    rows: window && window.rows.join("-"),
    columns: window && window.columns.join("-"),
    gain: shown.gain === null ? null : String(shown.gain),
  };
}

export const MOST_GAIN = 256;

const CLIPPED = 0.01; // of a map that may be brighter than the brightest colour

/** As bright as a map can be drawn with hardly a weight beyond the brightest colour; `above` as its overview tells. */
export function gainFor(above: (least: number) => readonly [number, number] | null): number {
  let gain = 1;
  while (gain < MOST_GAIN) {
    const found = above(1 / (2 * gain));
    if (!found || found[0] > CLIPPED * found[1]) break;
    gain *= 2;
  }
  return gain;
}

/** A stamp shows where a head looks at all: long rows share their weight among many keys. */
export const stampGain = (keys: number): number => (keys <= 64 ? 1 : keys <= 1024 ? 4 : 16);

function count(text: string | undefined): number | null {
  return text !== undefined && /^\d{1,9}$/.test(text) ? Number(text) : null;
}

function amount(text: string | undefined): number | null {
  return text !== undefined && /^\d{1,9}(\.\d{1,3})?$/.test(text) ? Number(text) : null;
}

function pair(text: string | undefined, between: string, read = count): readonly [number, number] | null {
  const [a, b, ...more] = (text ?? "").split(between).map(read);
  return typeof a === "number" && typeof b === "number" && more.length === 0 ? [a, b] : null;
}
