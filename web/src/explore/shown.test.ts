import { describe, expect, it } from "vitest";
import { parse, href } from "$lib/router.svelte";
import type { SiteInfo } from "$lib/api";
import { fitted, FIRST, read, write, type Shown } from "./shown";

describe("what is shown, as an address", () => {
  it("comes back exactly", () => {
    const shown: Shown = {
      at: { site: 11, head: 1 }, versus: { site: 0, head: 3 }, of: "b:c d", batch: 2, figure: "spread", order: "found",
      look: "lines", light: "layer", way: "in", lit: "value", pool: "mean", cell: { row: 3, column: 0 }, window: { rows: [4.25, 20], columns: [0, 7.01] }, gain: 16,
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

  it("leaves out what a capture does not have", () => {
    const size = { batch: 2, heads: 4, queries: 9, keys: 7 };
    const sites = [{ ...size, index: 0 }, { ...size, index: 1, queries: 3 }] as unknown as SiteInfo[];
    const of = (query: Record<string, string>): Shown => fitted(read(query), { sites });
    expect(of({ head: "99.1", with: "1.4", batch: "2", cell: "9.0" })).toEqual(FIRST);
    expect(of({ head: "1.3", cell: "3.0" })).toEqual({ ...FIRST, at: { site: 1, head: 3 } });
    const there = { head: "1.3", with: "0.0", batch: "1", cell: "2.6" };
    expect(of(there)).toEqual(read(there));
  });
});
