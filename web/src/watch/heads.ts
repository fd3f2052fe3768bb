/** The heads of a run, and when their alarms were on. */
import { count } from "$lib/format";
import type { RunInfo, RunView, SiteOfRun } from "$lib/api";

export interface HeadOfRun {
  readonly index: number;
  readonly site: SiteOfRun;
  readonly head: number;
}

export function headsOf(run: RunInfo): HeadOfRun[] {
  const all = run.sites.flatMap((site) =>
    Array.from({ length: site.heads }, (_, head) => ({ index: site.first + head, site, head })),
  );
  return all.sort((a, b) => a.index - b.index);
}

export const nameOf = ({ site, head }: HeadOfRun): string => `layer ${site.layer}, head ${head}`;

/** How long a time is, roughly, as `limelight watch` says it. */
export function age(seconds: number): string {
  const [minutes, hours, days] = [60, 3600, 86_400].map((unit) => Math.floor(seconds / unit)) as [number, number, number];
  if (days) return `${count(days, "day")} ${hours % 24} h`;
  return hours ? `${hours} h ${minutes % 60} min` : `${minutes} min`;
}

/** At most so many of the columns, evenly, each once, the first and the last among them. */
export function spaced(columns: number, most: number): number[] {
  const count = Math.min(columns, Math.max(1, most));
  return Array.from({ length: count }, (_, n) => (n ? Math.round((n * (columns - 1)) / (count - 1)) : 0));
}

/** A stretch of columns during which an alarm was on. */
export interface Stretch {
  readonly index: number;
  readonly alarm: string;
  readonly from: number;
  /** One past the last column; open alarms reach the end. */
  readonly to: number;
  readonly on: boolean;
}

/** The alarms of a run as columns of the view. */
export function stretches(run: RunInfo, view: RunView): Stretch[] {
  const column = (step: number): number => Math.max(0, view.steps.findLastIndex((first) => first <= step));
  return run.alarms.flatMap(({ raised, index, cleared }) => {
    if (index === null) return [];
    const to = cleared === null ? view.steps.length : column(cleared) + 1;
    return [{ index, alarm: raised.alarm, from: column(raised.step), to, on: cleared === null }];
  });
}
