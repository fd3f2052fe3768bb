/** What the scaling experiment found, as lines to draw and differences to tell. */
import type { Real, ScalingResults, ScalingRuns, TrainingFigure } from "$lib/api";
import type { Line } from "$lib/chart";

/** The scales by their names in the results, how each is drawn, and how it is called. */
export const SCALES = {
  "1/√d_k": { look: "warm", name: "divided by √d_k" },
  none: { look: "cold", name: "not scaled" },
  "1/d_k": { look: "plain", name: "divided by d_k" },
} as const;
export type Scale = keyof typeof SCALES;
export const ROOT: Scale = "1/√d_k";

/** The runs of one setting and size, one for each scale. */
export function runsOf(results: ScalingResults, setting: string, size: number): { scale: Scale; runs: ScalingRuns }[] {
  return (Object.keys(SCALES) as Scale[]).flatMap((scale) => {
    const runs = results.runs.find((run) => run.setting === setting && run.d_k === size && run.scale === scale);
    return runs ? [{ scale, runs }] : [];
  });
}

/** Every figure over the steps, a line for each scale. */
export const overSteps = (results: ScalingResults, setting: string, size: number, figure: TrainingFigure): Line[] =>
  runsOf(results, setting, size).map(({ scale, runs }) => ({ look: SCALES[scale].look, x: runs.steps, seeds: runs[figure] }));

/** The held-out loss at the end over d_k, a line for each scale. */
export const overSizes = (results: ScalingResults, setting: string): Line[] =>
  (Object.keys(SCALES) as Scale[]).map((scale) => {
    const ends = results.sizes.map((size) => heldOut(results, setting, scale, size));
    return {
      look: SCALES[scale].look,
      x: results.sizes,
      seeds: (ends[0] ?? []).map((_, seed) => ends.map((end) => end[seed] ?? null)),
    };
  });

export const heldOut = (results: ScalingResults, setting: string, scale: Scale, size: number): readonly Real[] =>
  runsOf(results, setting, size).find((found) => found.scale === scale)?.runs.held_out ?? [];

/**
 * The axis of a figure: the same for every setting and size, so that they can be compared. Of the
 * loss, what was before the first learning is left above the frame.
 */
export function axisOf(results: ScalingResults, figure: TrainingFigure): { from: number; to: number; log: boolean } {
  if (figure === "spread" || figure === "saturated") return { from: 0, to: 1, log: false };
  const values = results.runs.flatMap((run) => run[figure].flatMap((seed) => (figure === "loss" ? seed.slice(1) : seed)));
  const known = values.filter((x): x is number => x !== null);
  if (!known.length) return { from: 0, to: 1, log: false };
  return { from: Math.min(...known), to: Math.max(...known), log: figure === "score_gradient" };
}

/** What stands for the results until they come: their shape without a number, which takes their room. */
export const COMING: ScalingResults = {
  facts: { steps: 600, seeds: 3, width: 128, heads: 2, layers: 2, length: 64, batch: 32 },
  figures: { loss: "…", score_gradient: "…", spread: "…", saturated: "…" },
  settings: { unit: "entries of variance 1, Adam" },
  scales: Object.keys(SCALES),
  sizes: [16, 32, 64, 128, 256],
  runs: [16, 32, 64, 128, 256].flatMap((d_k) =>
    Object.keys(SCALES).map((scale) => ({
      setting: "unit", scale, d_k, steps: [0, 580], held_out: [null],
      loss: [[null, null]], score_gradient: [[null, null]], spread: [[null, null]], saturated: [[null, null]],
    })),
  ),
};

export const mean = (values: readonly Real[]): number =>
  values.reduce<number>((sum, x) => sum + (x ?? NaN), 0) / values.length;

/** How far a scale ends from 1/√d_k, in nats a character; `sure` where no seeds overlap. */
export function gap(results: ScalingResults, setting: string, scale: Scale, size: number): { nats: number; sure: boolean } {
  const [one, root] = [scale, ROOT].map((each) => heldOut(results, setting, each as Scale, size).map((x) => x ?? NaN));
  const sure = Math.min(...one!) > Math.max(...root!) || Math.max(...one!) < Math.min(...root!);
  return { nats: mean(one!) - mean(root!), sure };
}

/** A figure at the first step, the mean over seeds. */
export function atFirst(results: ScalingResults, setting: string, scale: Scale, size: number, figure: TrainingFigure): number {
  const runs = runsOf(results, setting, size).find((found) => found.scale === scale)?.runs;
  return mean(runs?.[figure].map((seed) => seed[0] ?? null) ?? []);
}
