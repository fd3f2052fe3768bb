import { expect, it } from "vitest";
import { trace } from "./attention";
import { byHand, rounded } from "./byHand";

it("rounds halves away from zero, as limelight.worked.by_hand.rounded does", () => {
  expect([0.125, -0.125, 1.005].map((x) => rounded(x))).toEqual([0.13, -0.13, 1.01]);
});

it("gives the worked example's figures on paper, while the exact ones differ", () => {
  const worked = trace([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]]);
  expect(byHand(worked)).toEqual({
    raw: [5, 2, -1],
    scaled: [3.54, 1.41, -0.71],
    weights: [0.88, 0.11, 0.01],
    output: [8.81, 0.89],
  });
  expect(worked.output![0]!.map((x) => rounded(x, 6))).toEqual([8.829123, 0.858154]);
});
