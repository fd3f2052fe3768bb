import { describe, expect, it } from "vitest";
import { parse, href } from "$lib/router.svelte";
import { FIRST, read, write, type Shown } from "./shown";

describe("what is shown, as an address", () => {
  it("comes back exactly", () => {
    const shown: Shown = {
      at: { site: 11, head: 1 }, versus: { site: 0, head: 3 }, batch: 2, figure: "spread", order: "worst",
      look: "lines", pool: "mean", cell: { row: 3, column: 0 }, window: { rows: [4.25, 20], columns: [0, 7.01] }, gain: 16,
    };
    const address = href("explore", ["a/b c:ü"], write(shown));
    const route = parse(address);
    expect(route.path).toEqual(["a/b c:ü"]);
    expect(read(route.query)).toEqual(shown);
  });

  it("is short for the first sight", () => {
    expect(href("explore", ["llama"], write(FIRST))).toBe("#/explore/llama");
    expect(read({})).toEqual(FIRST);
  });

  it("makes the best of nonsense", () => {
    expect(
      read({ head: "x.1", with: "1", cell: "-1.2", rows: "9-3", columns: "0-4", gain: "NaN", figure: "shoe", look: "", batch: "1e3" }),
    ).toEqual(FIRST);
  });
});
