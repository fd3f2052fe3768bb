import { describe, expect, it } from "vitest";
import type { RemedyResults } from "$lib/api";
import { COMING, fate, logits } from "./remedies";

const run = (remedy: string, seed: number, died: string[], held_out: number | null, largest: (number | null)[]) =>
  ({ remedy, rate: 0.1, seed, died, held_out, most: largest.at(-1)!, largest });
const results: RemedyResults = {
  ...COMING, rates: [0.1], steps: [0, 12],
  runs: [
    run("none", 0, ["logit"], 3, [1, 2000]), run("none", 1, ["logit", "entropy"], 4, [2, 5000]),
    run("clip", 0, [], 2, [1, 90]), run("clip", 1, ["entropy"], 2.5, [3, 120]),
  ],
};

describe("the experiment of remedies", () => {
  it("sets the remedy beside nothing done", () => {
    const [remedy, nothing] = logits(results, "clip", 0.1);
    expect([remedy!.look, remedy!.seeds]).toEqual(["warm", [[1, 90], [3, 120]]]);
    expect([nothing!.look, nothing!.seeds]).toEqual(["cold", [[1, 2000], [2, 5000]]]);
  });

  it("counts a run that died once, whatever it died of", () => {
    expect(fate(results, "none", 0.1)).toEqual({ runs: 2, died: 2, loss: 3.5, largest: 5000 });
    expect(fate(results, "clip", 0.1)).toEqual({ runs: 2, died: 1, loss: 2.25, largest: 120 });
  });

  it("keeps its shape while the results are on their way", () => {
    expect(fate(COMING, "clip", 0.01).runs).toBe(3);
    expect(logits(COMING, "clip", 0.01).flatMap(({ seeds }) => seeds.flat())).toEqual(Array(12).fill(null));
  });
});
