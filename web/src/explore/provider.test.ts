import { describe, expect, it } from "vitest";
import type { CaptureInfo, SiteInfo } from "$lib/api";
import { beside, fileOf, placeOf, serverProvider, siteLabels, tokensOf } from "./provider";

const site = (over: Partial<SiteInfo>): SiteInfo => ({
  index: 0, name: "a", layer: 0, kind: "self", batch: 1, heads: 1, key_heads: 1, queries: 3, keys: 3, head_size: 2,
  value_size: 0, writes: false, scale: 1, softcap: null, sinks: false, bias: false, only_weights: false, mask: "everything", ...over,
});

const info = (sites: SiteInfo[], over: Partial<CaptureInfo> = {}): CaptureInfo => ({
  id: "x", origin: "folder", title: "", model: "", text: "", layers: 1, heads: 1, tokens: 3, image: false, story: null, source: {},
  key_tokens: [["a", "b", "c"]], query_tokens: [["a", "b", "c"]], grid: null, grid_start: 0, sites, ...over,
});

describe("names", () => {
  it("gives a decoding site the last tokens as its queries", () => {
    const one = site({ queries: 1, keys: 3 });
    expect(tokensOf(info([one]), one, 0)).toEqual({ queries: ["c"], keys: ["a", "b", "c"] });
  });

  it("falls back to positions where nothing fits", () => {
    const cross = site({ kind: "cross", queries: 2, keys: 5 });
    expect(tokensOf(info([cross]), cross, 0)).toEqual({ queries: ["0", "1"], keys: ["0", "1", "2", "3", "4"] });
  });

  it("names sites where a layer has several", () => {
    expect(siteLabels(info([site({}), site({ name: "b" })]))).toEqual(["a", "b"]);
    expect(siteLabels(info([site({}), site({ layer: 4 })]))).toEqual(["0", "4"]);
  });

  it("counts layers and heads as the model does, in words and in files", () => {
    const some = info([site({}), site({ layer: 17 })], { heads: 9 });
    expect(placeOf(some, { site: 1, head: 5 })).toBe("layer 17, head 5");
    expect(fileOf(some, { site: 1, head: 5 }, "svg")).toBe("limelight-x-17-5.svg");
    const alone = info([site({ layer: 17 })], { id: "a:b c", source: { head: 7 } });
    expect(fileOf(alone, { site: 0, head: 0 }, "png")).toBe("limelight-a-b-c-17-7.png");
  });

  it("asks for a picture as bright as the map", () => {
    const path = serverProvider(info([site({})]), 2).picturePath!({ site: 0, head: 0 }, "svg", [0, 2], [1, 3], "max", 4);
    expect(path).toBe(
      "/api/captures/x/sites/0/heads/0/picture?format=svg&rows=0%3A2&columns=1%3A3&pool=max&batch=2&high=0.25",
    );
  });

  it("finds another head to compare with", () => {
    const three = info([site({ heads: 2 }), site({ layer: 1 })]);
    expect(beside(three, { site: 0, head: 0 })).toEqual({ site: 0, head: 1 });
    expect(beside(three, { site: 0, head: 1 })).toEqual({ site: 1, head: 0 });
    expect(beside(three, { site: 1, head: 0 })).toEqual({ site: 0, head: 1 });
    expect(beside(info([site({})]), { site: 0, head: 0 })).toBeNull();
  });
});
