import { describe, expect, it } from "vitest";
import type { RunInfo, RunView } from "$lib/api";
import { age, headsOf, marks, stretches, thinned } from "./heads";

const alarm = (step: number, index: number | null, cleared: number | null): RunInfo["alarms"][number] => ({
  raised: {
    kind: "alarm", event: "raised", step, alarm: "one_hot", site: "b", layer: 1, head: 0, figure: "saturated", value: 1, bound: 0.9,
  },
  index,
  cleared,
});

const run: RunInfo = {
  id: "r", model: "GPT", started: null, every: 10, records: 5, first_step: 0, last_step: 40, ended: null,
  restarts: [], heads: 5, bounds: [],
  sites: [{ name: "a", layer: 0, heads: 2, first: 0 }, { name: "b", layer: 1, heads: 3, first: 2 }],
  events: [], clips: [], clipped: 0,
  alarms: [alarm(10, 3, 20), alarm(12, null, null), alarm(30, 4, null)],
};
const view: RunView = {
  figure: "saturated", records: 5, steps: [0, 10, 20, 30, 40], last_steps: [9, 19, 29, 39, 49],
  values: [[0, 1, null, 0, 0]], loss: [], lr: [],
};

describe("a run", () => {
  it("lists its heads in order", () => {
    expect(headsOf(run).map(({ index, head }) => [index, head])).toEqual([[0, 0], [1, 1], [2, 0], [3, 1], [4, 2]]);
  });

  it("finds the stretches in which alarms were on", () => {
    expect(stretches(run, view)).toEqual([
      { index: 3, alarm: "one_hot", from: 1, to: 3, on: false },
      { index: 4, alarm: "one_hot", from: 3, to: 5, on: true },
    ]);
  });

  it("marks round steps, evenly", () => {
    expect(marks([0, 30, 60, 90, 120], 3)).toEqual([{ step: 0, at: 0 }, { step: 50, at: 1 + 2 / 3 }, { step: 100, at: 3 + 1 / 3 }]);
    expect(marks([7, 8, 9], 8)).toEqual([{ step: 7, at: 0 }, { step: 8, at: 1 }, { step: 9, at: 2 }]);
    expect(marks(Array.from({ length: 240 }, (_, n) => 5 * n), 6).map(({ step }) => step)).toEqual([0, 200, 400, 600, 800, 1000]);
    expect(marks([3], 8)).toEqual([{ step: 3, at: 0 }]);
    expect(marks([], 4)).toEqual([]);
  });

  it("marks a step once where a run was taken up again", () => {
    expect(marks([0, 50, 100, 50, 100, 150], 3)).toEqual([{ step: 0, at: 0 }, { step: 50, at: 1 }, { step: 100, at: 2 }, { step: 150, at: 5 }]);
  });

  it("says how far apart records are that were thinned", () => {
    expect(thinned({ ...run, every: 10 })).toBeNull();
    expect(thinned({ ...run, every: 2 })).toBe(10);
    expect(thinned({ ...run, every: 2, restarts: [20] })).toBeNull();
  });

  it("says how long ago", () => {
    expect([150, 11_700, 90_000, 31_578_117].map(age)).toEqual(["2 min", "3 h 15 min", "1 day 1 h", "365 days 11 h"]);
  });
});
