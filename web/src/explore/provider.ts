/**
 * Where the views of a capture get their numbers: the studio's server, the data inside a report, or
 * a notebook's kernel. The views do not know which.
 */
import {
  getCapture, getCaptures, getCell, getHealth,
  type CaptureInfo, type CaptureSummary, type CellData, type DifferenceInfo, type Finding, type HealthTable, type KindScores, type LinesData, type Lit, type Pool, type Side, type Sighting, type SiteHealth, type SiteInfo,
  type StripData,
} from "$lib/api";
import { differenceSource, serverSource, type Range, type Source } from "$lib/source";
import { getDifference, getFindings, getKinds, getLight, getLines, getSightings, getSiteHealth, getStrip, imagePath, reportPath } from "./api";

const AT_ONCE = 512; // tokens up to which the health of all layers is one quick question

export interface HeadAt {
  readonly site: number;
  readonly head: number;
}

/** What a second head looks at more and less, on the positions that both texts have. */
export interface Difference {
  readonly info: DifferenceInfo;
  readonly source: Source;
}

export interface Provider {
  readonly info: CaptureInfo;
  readonly batch: number;
  /** The pools it can make maps with. */
  readonly pools: readonly Pool[];
  /** The picture a vision model saw, as an address; null where there is none. */
  readonly picture: string | null;
  /** Each site's figures as they become known, in order. */
  health(arrived: (health: SiteHealth) => void, signal: AbortSignal): Promise<void>;
  /** Every head with what was found of it, what to look at first first. */
  findings(signal: AbortSignal): Promise<readonly Finding[]>;
  /** Every head's score for each known kind. */
  kinds(signal: AbortSignal): Promise<readonly KindScores[]>;
  /** The heads that look from a query to a key, the strongest first; left out where that cannot be told. */
  sightings?(row: number, column: number, signal: AbortSignal): Promise<readonly Sighting[]>;
  /** A row or column of a head, or of the mean over the heads of a site, or over all; left out where only strips are at hand. */
  light?(of: Partial<HeadAt> & { readonly rollout?: boolean }, side: Side, index: number, signal: AbortSignal): Promise<ArrayLike<number>>;
  /** A head's map; by what each weight brings only where `lights` has that. */
  source(at: HeadAt, pool: Pool, lit?: Lit): Source;
  /** What cells can be lit by; by their weights alone where this is left out. */
  readonly lights?: readonly Lit[];
  /** null where its numbers were left out, for their size. */
  cell(at: HeadAt, row: number, column: number, signal: AbortSignal): Promise<CellData | null>;
  /** Whether a strip can be had at all; always, where this is left out. */
  strips?(at: HeadAt, side: Side): boolean;
  strip(at: HeadAt, side: Side, index: number, signal: AbortSignal): Promise<StripData | null>;
  lines(at: HeadAt, rows: Range, k: number, signal: AbortSignal): Promise<LinesData | null>;
  /** Two heads beside one another, of this capture or another: left out where there is nobody to align them. */
  difference?(at: HeadAt, other: Provider, second: HeadAt, signal: AbortSignal): Promise<Difference>;
  /** The captures that may stand beside this one, and one of them opened. */
  others?(signal: AbortSignal): Promise<readonly CaptureSummary[]>;
  open?(id: string, signal: AbortSignal): Promise<Provider>;
  /** Addresses of files that the provider can make. */
  picturePath?(at: HeadAt, format: "png" | "svg", rows: Range, columns: Range, pool: Pool, gain: number): string;
  readonly reportPath?: string;
}

export function serverProvider(info: CaptureInfo, batch: number): Provider {
  const { id } = info;
  return {
    info,
    batch,
    pools: ["max", "mean"],
    picture: info.image ? imagePath(id, batch) : null,
    async health(arrived, signal) {
      if (info.tokens > AT_ONCE) {
        // A long one takes seconds: layer by layer, as they come.
        for (const site of info.sites) arrived(await getSiteHealth(id, site.index, batch, signal));
        return;
      }
      for (const row of rowsOf(await getHealth(id, batch, signal))) arrived(row);
    },
    findings: (signal) => getFindings(id, batch, signal),
    kinds: (signal) => getKinds(id, batch, signal),
    sightings: (row, column, signal) => getSightings(id, batch, row, column, signal),
    light: (of, side, index, signal) => getLight(id, batch, side, index, of, signal),
    lights: ["weight", "value"],
    source: once(({ site, head }, pool, lit) => {
      const { queries, keys } = siteOf(info, site);
      return serverSource({ capture: id, site, head, batch, rows: queries, columns: keys, pool, lit });
    }),
    cell: ({ site, head }, row, column, signal) => getCell(id, site, head, row, column, batch, signal),
    strip: ({ site, head }, side, index, signal) => getStrip(id, site, head, batch, side, index, signal),
    lines: ({ site, head }, rows, k, signal) => getLines(id, site, head, batch, rows, k, signal),
    async difference(at, other, second, signal) {
      const pair = [{ capture: id, batch, ...at }, { capture: other.info.id, batch: other.batch, ...second }] as const;
      const info = await getDifference(...pair, signal);
      return { info, source: differenceSource(...pair, info.first_queries.length, info.first_keys.length) };
    },
    others: (signal) => getCaptures(signal),
    open: async (other, signal) => serverProvider(await getCapture(other, signal), 0),
    picturePath({ site, head }, format, rows, columns, pool, gain) {
      const query = new URLSearchParams({
        format, rows: rows.join(":"), columns: columns.join(":"), pool, batch: String(batch), high: String(1 / gain),
      });
      return `/api/captures/${encodeURIComponent(id)}/sites/${site}/heads/${head}/picture?${query}`;
    },
    reportPath: reportPath(id, batch),
  };
}

/** A table of all sites as one row for each. */
export function rowsOf({ figures, verdicts }: HealthTable): SiteHealth[] {
  return verdicts.map((words, site) => {
    const row = Object.entries(figures).map(([name, table]) => [name, table[site] ?? []]);
    return { site, figures: Object.fromEntries(row) as SiteHealth["figures"], verdicts: words };
  });
}

/** The same source for the same head: a view that is given another one starts from nothing. */
export function once(make: (at: HeadAt, pool: Pool, lit: Lit) => Source): (at: HeadAt, pool: Pool, lit?: Lit) => Source {
  const made = new Map<string, Source>();
  return (at, pool, lit = "weight") => {
    const key = `${keyOf(at)}.${pool}.${lit}`;
    const known = made.get(key);
    if (known) return known;
    const source = make(at, pool, lit);
    made.set(key, source);
    return source;
  };
}

/** A head's name in maps and lists. */
export const keyOf = ({ site, head }: HeadAt): string => `${site}.${head}`;

export function siteOf(info: CaptureInfo, index: number): SiteInfo {
  const site = info.sites[index];
  if (!site) throw new Error(`The capture has no site ${index}: it has ${info.sites.length}.`);
  return site;
}

/** The texts of a site's queries and keys; positions where there are none that fit. */
export function tokensOf(info: CaptureInfo, site: SiteInfo, batch: number): { queries: string[]; keys: string[] } {
  const fit = (texts: readonly string[] | undefined, count: number): string[] => {
    if (texts?.length === count) return [...texts];
    // Decoding: fewer queries than keys are the last ones.
    if (texts && count < texts.length && site.kind === "self") return texts.slice(texts.length - count);
    return Array.from({ length: count }, (_, n) => String(n));
  };
  const keys = fit(info.key_tokens[batch], site.keys);
  const named = site.kind === "cross" ? info.query_tokens[batch] : (info.query_tokens[batch] ?? info.key_tokens[batch]);
  return { queries: fit(named, site.queries), keys };
}

/** The head after this one, or before it where it is the last; null where there is no other. */
export function beside(info: CaptureInfo, at: HeadAt): HeadAt | null {
  const all = info.sites.flatMap(({ heads }, site) => Array.from({ length: heads }, (_, head) => ({ site, head })));
  const here = all.findIndex(({ site, head }) => site === at.site && head === at.head);
  return all[here + 1] ?? all[here - 1] ?? null;
}

/** Layer numbers, or names where a layer has several sites. */
export function siteLabels(info: CaptureInfo): string[] {
  const layers = info.sites.map((site) => String(site.layer));
  return new Set(layers).size === layers.length ? layers : info.sites.map((site) => site.name);
}

/** Where a head is in its model. One that was taken out of its site says which it was. */
export const placeOf = (info: CaptureInfo, at: HeadAt): string => {
  const [layer, head] = numbersOf(info, at);
  return `layer ${layer}, head ${head}`;
};

/** What a file of a head's map is called. */
export const fileOf = (info: CaptureInfo, at: HeadAt, format: string): string =>
  fileName([info.id, ...numbersOf(info, at)], format);

/** A harmless name for a file that is saved. */
export const fileName = (parts: readonly string[], format: string): string =>
  `limelight-${parts.join("-")}.${format}`.replace(/[^\w.-]+/g, "-");

/** The layer and the head as the model counts them. */
function numbersOf(info: CaptureInfo, { site, head }: HeadAt): [string, string] {
  const own = info.heads === 1 ? (info.source["head"] ?? head) : head;
  return [siteLabels(info)[site] ?? String(site), String(own)];
}
