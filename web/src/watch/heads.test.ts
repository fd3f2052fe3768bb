import { describe, expect, it } from "vitest";
import type { RunInfo, RunView } from "$lib/api";
import { age, headsOf, spaced, stretches } from "./heads";

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

  it("marks no step twice", () => {
    expect(spaced(3, 8)).toEqual([0, 1, 2]);
    expect(spaced(1, 8)).toEqual([0]);
    expect(spaced(240, 4)).toEqual([0, 80, 159, 239]);
    expect(spaced(0, 4)).toEqual([]);
  });

  it("says how long ago", () => {
    expect([150, 11_700, 90_000, 31_578_117].map(age)).toEqual(["2 min", "3 h 15 min", "1 day 1 h", "365 days 11 h"]);
  });
});
