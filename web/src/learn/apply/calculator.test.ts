import { describe, expect, it } from "vitest";
import { calculate } from "./calculator";

describe("the calculator", () => {
  it.each([
    ["e^3.5", Math.exp(3.5)],
    ["e^(3.54-3.54) / (1 + e^-2.12)", 1 / (1 + Math.exp(-2.12))],
    ["33,12 ÷ 38,92", 33.12 / 38.92],
    ["5 ÷ √2", 5 / Math.sqrt(2)],
    ["2·−1 + 3", 1],
    ["−2^2", -4],
    ["2^3^2", 512],
  ])("%s", (text, value) => expect(calculate(text)).toBeCloseTo(value, 12));

  it.each(["", "e^", "(1", "1)", "two", "1 2", "1/0", "alert(1)"])("%s makes no sense", (text) => {
    expect(calculate(text)).toBeNull();
  });
});
