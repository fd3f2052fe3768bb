/** The heads of a run, and when their alarms were on. */
import { count } from "$lib/format";
import type { RunInfo, RunView, SiteOfRun } from "./api";

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

/** From each `raised` to its `cleared`, as columns of the view. A new run ends all that are on. */
export function stretches(run: RunInfo, view: RunView): Stretch[] {
  const first = new Map(run.sites.map((site) => [site.name, site.first]));
  const column = (step: number): number => {
    let at = 0;
    for (let n = 0; n < view.steps.length; n++) if (view.steps[n]! <= step) at = n;
    return at;
  };
  const on = new Map<string, { index: number; alarm: string; step: number }>();
  const found: Stretch[] = [];
  const end = (key: string, step: number): void => {
    const open = on.get(key);
    if (!open) return;
    on.delete(key);
    found.push({ index: open.index, alarm: open.alarm, from: column(open.step), to: column(step) + 1, on: false });
  };
  const restarts = [...run.restarts];
  for (const event of run.events) {
    while (restarts.length && event.step > restarts[0]!) {
      const step = restarts.shift()!;
      for (const key of [...on.keys()]) end(key, step);
    }
    const begin = first.get(event.site);
    if (begin === undefined) continue;
    const key = `${event.alarm} ${begin + event.head}`;
    if (event.event === "raised") on.set(key, { index: begin + event.head, alarm: event.alarm, step: event.step });
    else end(key, event.step);
  }
  for (const { index, alarm, step } of on.values()) {
    found.push({ index, alarm, from: column(step), to: view.steps.length, on: true });
  }
  return found;
}
