/** The heads of a run, and when their alarms were on. */
import { ticks } from "$lib/chart";
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

/** Steps between two records where only some of those that were logged are kept: alarms may lie between them. */
export function thinned({ every, records, restarts, first_step: from, last_step: to }: RunInfo): number | null {
  if (every === null || records < 2 || restarts.length || from === null || to === null) return null;
  const apart = Math.round((to - from) / (records - 1));
  return apart > every ? apart : null;
}

export const nameOf = ({ site, head }: HeadOfRun): string => `layer ${site.layer}, head ${head}`;

/** How long a time is, roughly, as `limelight watch` says it. */
export function age(seconds: number): string {
  const [minutes, hours, days] = [60, 3600, 86_400].map((unit) => Math.floor(seconds / unit)) as [number, number, number];
  if (days) return `${count(days, "day")} ${hours % 24} h`;
  return hours ? `${hours} h ${minutes % 60} min` : `${minutes} min`;
}

/** Round steps, about so many, and where they lie among the columns: 1.5 is halfway between the second and the third. */
export function marks(steps: readonly number[], most: number): { readonly step: number; readonly at: number }[] {
  const [from, to] = [Math.min(...steps), Math.max(...steps)];
  if (steps.length && from === to) return [{ step: from, at: 0 }];
  return ticks({ from, to, log: false }, most).filter(Number.isInteger).flatMap((step) => {
    const n = steps.findIndex((first, n) => first <= step && step <= (steps[n + 1] ?? first));
    return n < 0 ? [] : [{ step, at: n + (step - steps[n]!) / ((steps[n + 1] ?? Infinity) - steps[n]! || 1) }];
  });
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
