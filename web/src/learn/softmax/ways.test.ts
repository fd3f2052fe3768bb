import { describe, expect, it } from "vitest";
import golden from "../../../golden/attention.json";
import { WAYS } from "./ways";

describe("ways to make shares", () => {
  it("softmax is the library's", () => {
    const { scaled, weights } = golden["worked example"];
    WAYS.softmax(scaled[0]!).forEach((w, n) => expect(w).toBeCloseTo(weights[0]![n]!, 13));
  });
  it("plain normalising fails on negative scores, argmax on slopes", () => {
    expect(WAYS.plain([3, 1, -2]).some((w) => w < 0)).toBe(true);
    expect(WAYS.plain([1, -1])).toEqual([Infinity, -Infinity]);
    expect(WAYS.argmax([1, 2.9, 3])).toEqual(WAYS.argmax([1, 2.99, 3]));
  });
});
