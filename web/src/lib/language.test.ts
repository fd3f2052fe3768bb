import { describe, expect, it } from "vitest";
import { Catalogue, fill, grouped } from "./language.svelte";

describe("a catalogue", () => {
  const german = new Catalogue({ "Key {1} is hidden.": "{1} ist verdeckt.", "{1} {2} is off": "{2}: {1}", Key: "Schlüssel" });

  it("reads a sentence by its form, and what stands in its gaps", () => {
    expect(german.read("Key 2 is hidden.")).toBe("2 ist verdeckt.");
    expect(german.read("Key 3 is off")).toBe("3: Schlüssel");
  });

  it("leaves what it does not know", () => {
    expect(german.read("Nobody has this.")).toBe("Nobody has this.");
  });
});

it("fills gaps in any order", () => {
  expect(fill("{2} vor {1}", (n) => ["a", "b"][n - 1]!)).toBe("b vor a");
});

it("groups large numbers, and keeps the point for decimals", () => {
  expect(grouped(12000)).toBe("12,000");
  expect(grouped(0.25, { maximumFractionDigits: 6 })).toBe("0.25");
});
