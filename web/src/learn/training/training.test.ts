import { describe, expect, it } from "vitest";
import type { ScalingResults, ScalingRuns } from "$lib/api";
import { around, path, power, share, ticks } from "$lib/chart";
import { atFirst, axisOf, COMING, gap, overSizes, overSteps } from "./training";

const runs = (scale: string, d_k: number, held_out: number[]): ScalingRuns => ({
  setting: "unit", scale, d_k, steps: [0, 20, 40], held_out,
  loss: [[4, 3, 2], [4.5, 3.5, 1.5]],
  score_gradient: [[0.01, 0.1, 1], [0.03, 0.1, null]],
  spread: [[1, 0.5, 0.25], [1, 0.5, 0.25]],
  saturated: [[0, 0.5, 1], [0.5, 0.5, 1]],
});
const results: ScalingResults = {
  facts: { steps: 60, seeds: 2, width: 8, heads: 1, layers: 1, length: 4, batch: 2 },
  figures: { loss: "", score_gradient: "", spread: "", saturated: "" },
  settings: { unit: "" }, scales: ["1/√d_k", "none", "1/d_k"], sizes: [16, 64],
  runs: [
    runs("1/√d_k", 16, [2.0, 2.1]), runs("none", 16, [2.05, 2.2]), runs("1/d_k", 16, [2.3, 2.4]),
    runs("1/√d_k", 64, [2.0, 2.1]), runs("none", 64, [1.8, 1.9]), runs("1/d_k", 64, [2.5, 2.6]),
  ],
};

describe("the experiment as lines", () => {
  it("has a line for each scale, in one order, with every seed", () => {
    const lines = overSteps(results, "unit", 16, "loss");
    expect(lines.map(({ look }) => look)).toEqual(["warm", "cold", "plain"]);
    expect(lines[0]!.seeds).toEqual([[4, 3, 2], [4.5, 3.5, 1.5]]);
    expect(overSizes(results, "unit")[1]!.seeds).toEqual([[2.05, 1.8], [2.2, 1.9]]);
  });

  it("claims a difference only where no seeds overlap", () => {
    expect(gap(results, "unit", "none", 16)).toEqual({ nats: expect.closeTo(0.075), sure: false });
    expect(gap(results, "unit", "none", 64)).toEqual({ nats: expect.closeTo(-0.2), sure: true });
    expect(gap(results, "unit", "1/d_k", 16)).toEqual({ nats: expect.closeTo(0.3), sure: true });
  });

  it("knows the first step", () => {
    expect(atFirst(results, "unit", "none", 16, "saturated")).toBe(0.25);
  });

  it("keeps its shape while the results are on their way", () => {
    const lines = overSizes(COMING, "unit");
    expect(lines).toHaveLength(3);
    expect(lines.flatMap(around)).toEqual([]);
    expect(axisOf(COMING, "loss")).toEqual({ from: 0, to: 1, log: false });
    expect(gap(COMING, "unit", "none", 256).sure).toBe(false);
  });

  it("has one axis a figure; the untrained loss stays above it", () => {
    expect(axisOf(results, "loss")).toEqual({ from: 1.5, to: 3.5, log: false });
    expect(axisOf(results, "score_gradient")).toEqual({ from: 0.01, to: 1, log: true });
    expect(axisOf(results, "spread")).toEqual({ from: 0, to: 1, log: false });
  });
});

describe("a chart", () => {
  it("writes powers of ten alike", () => {
    expect([1, 10, 1e5, 1e12, 0.01].map(power)).toEqual(["10⁰", "10¹", "10⁵", "10¹²", "10⁻²"]);
  });

  it("places values along even and along logarithmic axes", () => {
    expect(share({ from: 1, to: 3, log: false }, 2)).toBe(0.5);
    expect(share({ from: 0.01, to: 1, log: true }, 0.1)).toBeCloseTo(0.5);
  });

  it("labels round numbers within the axis", () => {
    expect(ticks({ from: 1.8, to: 3.2, log: false }, 4)).toEqual([2, 2.5, 3]);
    expect(ticks({ from: 0, to: 1, log: false }, 4)).toEqual([0, 0.5, 1]);
    expect(ticks({ from: 0.0007, to: 3.8, log: true }, 4)).toEqual([0.001, 0.01, 0.1, 1]);
  });

  it("knows the lowest, the mean and the highest seed of each point, also where one is missing", () => {
    const [line] = overSteps(results, "unit", 16, "score_gradient");
    const [first, , last] = around(line!);
    expect(first).toEqual({ x: 0, low: 0.01, mean: 0.02, high: 0.03 });
    expect(last).toEqual({ x: 40, low: 1, mean: 1, high: 1 });
  });

  it("draws a path through its points", () => {
    expect(path([[0, 1], [2, 3.456]])).toBe("M0.00 1.00L2.00 3.46");
  });
});
