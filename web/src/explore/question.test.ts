import { describe, expect, it } from "vitest";
import type { KindScores, Sighting, SiteHealth } from "$lib/api";
import { answer, byOf, strongest, type Known } from "./question";

const sighting = (site: number, head: number, weight: number): Sighting => ({ site, layer: site, head, row: 2, column: 1, query: " cat", key: " curious", weight });
const nothing: Known = { heads: [2, 2], layers: [4, 7], health: [undefined, undefined], kinds: null, sightings: null, tokens: null, effects: null };

describe("what heads are coloured by", () => {
  it("is read from an address", () => {
    expect(["cell", "effect", "kind.induction", "spread", "shoe", "kind.", undefined].map(byOf)).toEqual([
      "cell", "effect", "kind.induction", "spread", null, null, null,
    ]);
  });

  it("is the weight of each head at the open cell, 0 where a head gives none", () => {
    const found = answer("cell", { ...nothing, sightings: [sighting(1, 1, 0.93), sighting(0, 1, 0.9)], tokens: [" cat", " curious"] });
    expect(found.table).toEqual([[0, 0.9], [0, 0.93]]);
    expect(found.meaning).toBe("How much of its attention “cat” gives “curious”");
    expect(strongest(found, 6).map(({ site, head, value }) => [site, head, value])).toEqual([[1, 1, 0.93], [0, 1, 0.9]]);
    expect(answer("cell", nothing).table).toEqual([[null, null], [null, null]]);
  });

  it("is a kind's score", () => {
    const kind: KindScores = { name: "induction", title: "induction", meaning: "looks at what followed", threshold: 0.3, scores: [[0.1, 0.5], [null, 0.2]], chance: [], rows: [] };
    const found = answer("kind.induction", { ...nothing, kinds: [kind] });
    expect(strongest(found, 2).map(({ value }) => value)).toEqual([0.5, 0.2]);
    expect(answer("kind.bracket", { ...nothing, kinds: [kind] }).table).toEqual([[null, null], [null, null]]);
  });

  it("is what its absence does, by the layer's number, a fall lit and a rise cool", () => {
    const change = Array.from({ length: 8 }, (_, layer) => (layer === 4 ? [-2, 0.5] : layer === 7 ? [-1, 0] : [9, 9]));
    const found = answer("effect", { ...nothing, effects: { answer: "n", before: -1, change: change.map((row) => (row[0] === 9 ? [0, 0] : row)) } });
    expect(found.table).toEqual([[-2, 0.5], [-1, 0]]);
    expect(strongest(found, 9).map(({ value, share }) => [value, share])).toEqual([[-2, 1], [-1, 0.5], [0.5, -0.25]]);
  });

  it("is a figure of their health, where the lit end may be the low one", () => {
    const health = (entropy: number[]): SiteHealth => ({ site: 0, figures: { entropy } as unknown as SiteHealth["figures"], verdicts: [] });
    const found = answer("entropy", { ...nothing, health: [health([0.5, 2]), health([1, 1.5])] });
    expect(strongest(found, 1).map(({ value }) => value)).toEqual([0.5]);
  });
});
