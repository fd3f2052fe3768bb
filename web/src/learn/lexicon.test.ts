import { describe, expect, it } from "vitest";
import { FEATURES, KNOWN, read } from "./lexicon";

const most = (word: string): string | null => {
  const features = read(word);
  return features && (FEATURES[features.indexOf(Math.max(...features))] ?? null);
};

describe("the lexicon", () => {
  it("knows some hundred words", () => expect(KNOWN).toBeGreaterThan(500));

  it.each([
    ["dog", "thing"], ["Dog", "thing"], ["dog,", "thing"], ["“dog”", "thing"], ["dogs", "thing"], ["dog's", "thing"], ["dogs'", "thing"],
    ["foxes", "thing"], ["cities", "thing"], ["horses", "thing"], ["children", "thing"], ["mice", "thing"],
    ["lazy", "trait"], ["happier", "trait"], ["happiest", "trait"], ["slowly", "trait"], ["happily", "trait"], ["biggest", "trait"], ["nicer", "trait"],
    ["chased", "deed"], ["chasing", "deed"], ["running", "deed"], ["ran", "deed"], ["cries", "deed"], ["carried", "deed"], ["stopped", "deed"], ["jumps", "deed"],
    ["over", "glue"], ["the", "glue"], ["is", "glue"], ["don’t", "glue"],
  ])("reads %s as a %s", (word, feature) => expect(most(word)).toBe(feature));

  it("keeps two readings apart by the ending", () => {
    expect(read("watch")![1]).toBeGreaterThan(0);
    expect(read("watching")).toEqual([0, 0, 1, 0]);
    expect(read("warmer")).toEqual([1, 0, 0, 0]);
  });

  it.each(["qwrtz", "xs", "inged", "", "?!"])("does not know %j", (word) => expect(read(word)).toBeNull());

  it("has features from 0 to 1, of which one at least is meant", () => {
    for (const word of ["the", "curious", "cat", "watched", "bird", "they", "my", "three", "light", "near"]) {
      const features = read(word)!;
      expect(features).toHaveLength(FEATURES.length);
      expect(Math.max(...features)).toBeGreaterThanOrEqual(0.5);
      for (const x of features) expect(x >= 0 && x <= 1).toBe(true);
    }
  });
});
