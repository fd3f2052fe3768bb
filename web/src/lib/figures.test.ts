import { describe, expect, it } from "vitest";
import { figureOf, FIGURES, RUN_FIGURES, scaleOf } from "./figures";

describe("figures", () => {
  it("lights what is of concern", () => {
    expect(scaleOf(figureOf(FIGURES, "spread"), [[0.2]])).toEqual([1, 0]);
    expect(scaleOf(figureOf(FIGURES, "max_logit"), [[3, null], [40]])).toEqual([0, 40]);
    expect(scaleOf(figureOf(RUN_FIGURES, "not_a_number"), [])).toEqual([0, 1e-9]);
  });

  it("knows those of a run, and takes the first for a stranger", () => {
    expect(figureOf(RUN_FIGURES, "not_a_number").title).toBe("Rows not a number");
    expect(figureOf(RUN_FIGURES, "gradient").name).toBe("saturated");
    expect(figureOf(FIGURES, undefined).name).toBe("saturated");
  });
});
