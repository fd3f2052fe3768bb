/** The figures of a run, and which end of each is of concern. */
import type { RunInfo, RunView, SiteOfRun } from "./api";

export interface RunFigure {
  readonly name: string;
  readonly title: string;
  readonly worse: "high" | "low";
  /** Fixed scale; null takes it from the numbers. */
  readonly scale: readonly [number, number] | null;
}

export const RUN_FIGURES: readonly RunFigure[] = [
  { name: "saturated", title: "Saturated rows", worse: "high", scale: [0, 1] },
  { name: "max_logit", title: "Largest logit", worse: "high", scale: null },
  { name: "max_prob", title: "Largest weight", worse: "high", scale: [0, 1] },
  { name: "entropy", title: "Entropy", worse: "low", scale: null },
  { name: "spread", title: "Spread", worse: "low", scale: [0, 1] },
  { name: "peaked", title: "Peaked rows", worse: "high", scale: [0, 1] },
  { name: "not_a_number", title: "Rows not a number", worse: "high", scale: null },
];

export const runFigure = (name: string | undefined): RunFigure =>
  RUN_FIGURES.find((figure) => figure.name === name) ?? RUN_FIGURES[0]!;

/** The ends of the colour scale, dark and lit; what is of concern is lit. */
export function ends(figure: RunFigure, view: RunView | null): [number, number] {
  let [low, high] = figure.scale ?? [0, 1e-9];
  if (!figure.scale) {
    for (const row of view?.values ?? []) for (const value of row) if (value !== null) high = Math.max(high, value);
    for (const row of view?.values ?? []) for (const value of row) if (value !== null) low = Math.min(low, value);
  }
  return figure.worse === "high" ? [low, high] : [high, low];
}

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
  if (days) return `${days} ${days === 1 ? "day" : "days"} ${hours % 24} h`;
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
