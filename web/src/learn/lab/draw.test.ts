import { describe, expect, it } from "vitest";
import { dot, softmax } from "$lib/attention";
import { normals } from "$lib/random";
import curves from "./curves.json";
import { draw, LONGEST } from "./draw";

describe("a draw", () => {
  it("has for scores the dot products of the first entries", () => {
    const made = draw(5, 3);
    for (const size of [1, 7, 64, LONGEST]) {
      expect(made.scores(size)).toEqual(made.keys.map((key) => dot(made.query.slice(0, size), key.slice(0, size))));
    }
  });

  it("is the same for the same seed, another for another", () => {
    expect(draw(5, 3).scores(64)).toEqual(draw(5, 3).scores(64));
    expect(draw(5, 3).scores(64)).not.toEqual(draw(6, 3).scores(64));
  });
});

it("normal numbers have mean 0, variance 1 and the tails they should", () => {
  const next = normals(11);
  const some = Array.from({ length: 200_000 }, next);
  const moment = (n: number): number => some.reduce((sum, x) => sum + x ** n, 0) / some.length;
  expect(moment(1)).toBeCloseTo(0, 2);
  expect(moment(2)).toBeCloseTo(1, 2);
  expect(moment(4)).toBeCloseTo(3, 1);
});

it("draws of the page average to the library's curve", () => {
  const at = curves.sizes.indexOf(64);
  for (const [setting, scale] of [["scaled", 1 / 8], ["unscaled", 1]] as const) {
    const tops = Array.from({ length: 400 }, (_, seed) =>
      softmax(draw(seed, 8).scores(64).map((s) => s * scale)).health.maxProb,
    );
    const mean = tops.reduce((a, b) => a + b, 0) / tops.length;
    expect(Math.abs(mean - curves.keys["8"][setting].max_prob[at]!)).toBeLessThan(0.03); // 4 σ
  }
});
