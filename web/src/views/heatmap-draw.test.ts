import { describe, expect, it } from "vitest";
import { labelled } from "./heatmap-draw";

describe("which cells get a label", () => {
  it("every step-th in view", () => {
    expect(labelled([7, 31], 10, null, 3)).toEqual([10, 20, 30]);
    expect(labelled([0, 3], 1, undefined, 1)).toEqual([0, 1, 2]);
    expect(labelled([4, 4], 5, null, 1)).toEqual([]);
  });

  it("and the one pointed at, in place of those it would lie on", () => {
    expect(labelled([0, 5000], 1000, 2100, 300)).toEqual([0, 1000, 3000, 4000, 2100]);
    expect(labelled([0, 5000], 1000, 2500, 300)).toEqual([0, 1000, 2000, 3000, 4000, 2500]);
    expect(labelled([0, 5000], 1000, 0, 300)).toEqual([1000, 2000, 3000, 4000, 0]);
  });
});
