import { describe, expect, it } from "vitest";
import { along, angle, arrow, foot, length } from "./geometry";

describe("a score is a projection times a length", () => {
  it.each([
    [[2, 1], [2, 1]],
    [[2, 1], [0, -1]],
    [[-3, 0.5], [1, 4]],
  ] as const)("query %j, key %j", (query, key) => {
    expect(along(key, query) * length(query)).toBeCloseTo(query[0] * key[0] + query[1] * key[1], 12);
    const [x, y] = foot(key, query);
    expect((key[0] - x) * query[0] + (key[1] - y) * query[1]).toBeCloseTo(0, 12); // at right angles
    expect(Math.hypot(x, y)).toBeCloseTo(Math.abs(along(key, query)), 12);
  });

  it("an arrow of no length reaches nowhere", () => {
    expect(along([1, 2], [0, 0])).toBe(0);
    expect(foot([1, 2], [0, 0])).toEqual([0, 0]);
  });

  it("turning and reading the angle agree to the rounding", () => {
    for (const degrees of [-170, -90, 0, 26.57, 90, 180]) {
      expect(Math.abs(angle(arrow(degrees, 2.236)) - degrees)).toBeLessThan(0.3);
    }
    expect(arrow(90, 1)).toEqual([0, 1]);
  });
});
