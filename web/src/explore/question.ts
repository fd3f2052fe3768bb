/** What the heads of a capture are coloured by: their health, a kind's score, the open cell, what their absence does. */
import type { Figure, Finding, KindScores, LiveEffects, Real, Sighting, SiteHealth } from "$lib/api";
import { figureOf, FIGURES, scaleOf } from "$lib/figures";
import { capital, fixed, percent, word } from "$lib/format";
import type { HeadAt } from "./provider";

export type By = Figure | "cell" | "effect" | `kind.${string}`;

/** An answer for every head; what is not known yet is null. */
export interface Answer {
  readonly title: string;
  readonly meaning: string;
  /** [site][head] */
  readonly table: readonly (readonly Real[])[];
  /** The figures that are drawn dark and fully lit. */
  readonly scale: readonly [number, number];
  /** Whether figures on the other side of the dark one are drawn in the other colour. */
  readonly signed: boolean;
  /** Whether the server has yet to say more of it. */
  readonly awaited: boolean;
  write(value: Real): string;
}

export interface Known {
  readonly heads: readonly number[];
  /** The layer of each site. */
  readonly layers: readonly number[];
  readonly health: readonly (SiteHealth | undefined)[];
  readonly kinds: readonly KindScores[] | null;
  /** The heads that look from the open cell's query to its key, and the two tokens. */
  readonly sightings: readonly Sighting[] | null;
  readonly tokens: readonly [string, string] | null;
  readonly effects: LiveEffects | null;
}

const SHARES = new Set<Figure>(["saturated", "peaked"]);
const plain = (value: Real): string =>
  value === null ? "–" : fixed(value, Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
const KIND = /^kind\.([a-z][\w-]{0,40})$/;

/** The question of that name; null for one that there is not. */
export function byOf(name: string | undefined): By | null {
  if (name === "cell" || name === "effect" || KIND.test(name ?? "")) return name as By;
  return FIGURES.some((figure) => figure.name === name) ? (name as Figure) : null;
}

export function answer(by: By, known: Known): Answer {
  const each = (value: (site: number, head: number) => Real): Real[][] =>
    known.heads.map((count, site) => Array.from({ length: count }, (_, head) => value(site, head)));
  if (by === "cell") {
    const found = new Map(known.sightings?.map(({ site, head, weight }) => [`${site}.${head}`, weight]));
    const [query, key] = known.tokens ?? ["", ""];
    return {
      title: "This cell",
      meaning: known.tokens ? `How much of its attention “${word(query)}” gives “${word(key)}”` : "Choose a cell of the map, or two words of the text",
      table: each((site, head) => (known.sightings ? (found.get(`${site}.${head}`) ?? 0) : null)),
      scale: [0, 1], signed: false, awaited: known.tokens !== null && known.sightings === null, write: plain,
    };
  }
  if (by === "effect") {
    const change = known.effects?.change ?? [];
    const most = Math.max(1e-9, ...change.flat().map(Math.abs));
    return {
      title: "Effect",
      meaning: known.effects
        ? `What its absence does to the log-probability of “${known.effects.answer}”: warm where it falls, cool where it rises`
        : "What each head’s absence does to the next token: not measured for this text yet",
      table: each((site, head) => change[known.layers[site] ?? -1]?.[head] ?? null),
      scale: [0, -most], signed: true, awaited: false, write: (value) => (value === null ? "–" : fixed(value, 3)),
    };
  }
  const named = KIND.exec(by)?.[1];
  if (named !== undefined) {
    const kind = known.kinds?.find(({ name }) => name === named);
    return {
      title: kind ? capital(kind.title) : capital(named),
      meaning: kind ? `Share of its attention that ${kind.meaning}` : known.kinds ? "No row of this text can be judged by it" : "Being looked for",
      table: each((site, head) => kind?.scores[site]?.[head] ?? null),
      scale: [0, 1], signed: false, awaited: known.kinds === null, write: plain,
    };
  }
  const kind = figureOf(FIGURES, by);
  const table = each((site, head) => known.health[site]?.figures[kind.name][head] ?? null);
  return {
    title: kind.title, meaning: capital(kind.meaning), table, scale: scaleOf(kind, table), signed: false,
    awaited: known.health.some((row) => row === undefined),
    write: (value) => (value !== null && SHARES.has(kind.name) ? percent(value) : plain(value)),
  };
}

/** How brightly a figure is drawn: from 0 to 1, and below where the scale has two sides. */
export function shareOf({ scale, signed }: Pick<Answer, "scale" | "signed">, value: number): number {
  const share = (value - scale[0]) / (scale[1] - scale[0] || 1);
  return Math.min(1, Math.max(signed ? -1 : 0, share));
}

/** The heads that are lit most, the brightest first. */
export function strongest(found: Answer, most: number, fits: (head: HeadAt) => boolean = () => true): (HeadAt & { readonly value: number; readonly share: number })[] {
  return found.table
    .flatMap((row, site) => row.flatMap((value, head) => (value === null ? [] : [{ site, head, value, share: shareOf(found, value) }])))
    .filter((head) => head.share !== 0 && fits(head))
    .sort((a, b) => Math.abs(b.share) - Math.abs(a.share) || a.site - b.site || a.head - b.head)
    .slice(0, most);
}

/** The kinds that any head was found to be of, as their words. */
export const kindsIn = (findings: readonly Finding[]): string[] => [...new Set(findings.flatMap(({ kinds }) => kinds))].sort();
