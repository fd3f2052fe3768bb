/** What the experiment of remedies found, as lines to draw and counts to tell. */
import type { RemedyResults, RemedyRun } from "$lib/api";
import type { Line } from "$lib/chart";

export const NOTHING = "none";
export const RATES = [0.001, 0.01, 0.03, 0.1] as const;
export const REMEDIES = ["clip", "z_loss", "floor", "norm"] as const;
/** The largest logit above which a run counts as dead. */
export const DEAD = 1000;

export const runsOf = (results: RemedyResults, remedy: string, rate: number): RemedyRun[] =>
  results.runs.filter((run) => run.remedy === remedy && run.rate === rate);

/** The largest logit over the steps: with the remedy, and with nothing done. */
export const logits = (results: RemedyResults, remedy: string, rate: number): Line[] =>
  ([[remedy, "warm"], [NOTHING, "cold"]] as const).map(([name, look]) => ({
    look,
    x: results.steps,
    seeds: runsOf(results, name, rate).map((run) => run.largest),
  }));

/** Of the runs of one remedy at one rate: how many, how many died, the mean held-out loss, and the largest logit. */
export function fate(results: RemedyResults, remedy: string, rate: number): { runs: number; died: number; loss: number; largest: number } {
  const runs = runsOf(results, remedy, rate);
  return {
    runs: runs.length,
    died: runs.filter((run) => run.died.length).length,
    loss: runs.reduce((sum, run) => sum + (run.held_out ?? NaN), 0) / runs.length,
    largest: Math.max(...runs.map((run) => run.most ?? NaN)),
  };
}

/** What stands for the results until they come: their shape without a number, which takes their room. */
export const COMING: RemedyResults = {
  facts: { steps: 600, seeds: 3, width: 256, heads: 4, layers: 4, length: 256, batch: 32 },
  remedies: { none: "nothing done", clip: "QKClip at 100", z_loss: "z-loss", floor: "entropy floor", norm: "normalised queries and keys" },
  rates: [...RATES],
  steps: [0, 588],
  runs: [NOTHING, ...REMEDIES].flatMap((remedy) =>
    RATES.flatMap((rate) =>
      [0, 1, 2].map((seed) => ({ remedy, rate, seed, died: remedy === NOTHING ? ["logit"] : [], held_out: null, most: null, largest: [null, null] })),
    ),
  ),
};
