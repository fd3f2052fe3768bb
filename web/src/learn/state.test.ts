// @vitest-environment happy-dom
import { flushSync } from "svelte";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { router } from "$lib/router.svelte";
import { choice, flag, keep, lessons, real, table, text, whole } from "./state.svelte";

const lab = keep("bench", {
  d_k: whole(64, 1, 1024),
  scaled: flag(true),
  keys: choice([2, 4, 8], 8),
  share: real(0.5, 0, 1),
  said: text("a b", 12),
  rows: table([[2, 1], [1, 0]]),
  list: table([[3], [4]], 2, 4),
});
const other = keep("other", { n: whole(0, 0, 9) });

/** Goes to an address as a link would, and lets the page take it. */
function visit(hash: string): void {
  location.hash = hash;
  window.dispatchEvent(new Event("hashchange"));
  flushSync();
}

function settled(): string {
  flushSync();
  vi.runAllTimers();
  return location.hash;
}

beforeEach(() => {
  vi.useFakeTimers();
  visit("#/learn");
  lessons.reset(["bench", "other"]);
  settled();
});

describe("the state of the lessons", () => {
  it("stands in the address where it differs from its start", () => {
    lab.now.d_k = 128;
    lab.now.rows[1]![0] = -1.5;
    expect(settled()).toBe("#/learn?bench.d_k=128&bench.rows=2%2C1%3B-1.5%2C0");
    expect(lessons.touched(["bench"])).toBe(true);
    expect(lessons.touched(["other"])).toBe(false);
    lessons.reset(["bench"]);
    expect(settled()).toBe("#/learn");
    expect(lab.now.rows).toEqual([[2, 1], [1, 0]]);
  });

  it("is set by an address, whole for each part it names, and stays where it names none", () => {
    lab.now.d_k = 128;
    other.now.n = 3;
    settled();
    visit("#/learn/lab?bench.scaled=0&bench.said=x+y&bench.list=1;2;3");
    expect({ ...lab.now, rows: 0, list: [...lab.now.list] }).toEqual(
      { d_k: 64, scaled: false, keys: 8, share: 0.5, said: "x y", rows: 0, list: [[1], [2], [3]] });
    expect(other.now.n).toBe(3);
    expect(settled()).toContain("other.n=3");
    visit("#/learn/map"); // a plain link
    expect(lab.now.scaled).toBe(false);
    expect(settled()).toBe("#/learn/map?bench.scaled=0&bench.said=x+y&bench.list=1%3B2%3B3&other.n=3");
  });

  it.each([
    ["d_k", "0"], ["d_k", "1.5"], ["d_k", ""], ["d_k", "1e99"], ["scaled", "yes"], ["keys", "3"], ["share", "NaN"],
    ["said", "longer than it may be"], ["rows", "1,2"], ["rows", "1,2;3"], ["rows", "1,2;3,x"], ["rows", "1,2;3,1e300"],
    ["list", "1"], ["list", "1;2;3;4;5"],
  ])("goes to its start where an address makes no sense: %s=%s", (key, value) => {
    visit(`#/learn?bench.${key}=${encodeURIComponent(value)}`);
    expect(lab.write()).toEqual({});
  });

  it("makes links that say everything of a part, and nothing of others", () => {
    other.now.n = 3;
    const link = lessons.link(["bench"]);
    expect(link).toContain("#/learn/bench?bench.d_k=64&bench.scaled=1&bench.keys=8");
    expect(link).not.toContain("other");
    lab.now.d_k = 5;
    visit(`#${link.split("#")[1]}`);
    expect(lab.now.d_k).toBe(64);
  });

  it("leaves the addresses of other areas alone", () => {
    lab.now.d_k = 7;
    visit("#/watch");
    expect(settled()).toBe("#/watch");
    lab.now.d_k = 9;
    expect(settled()).toBe("#/watch");
    visit("#/learn");
    expect(settled()).toBe("#/learn?bench.d_k=9");
  });

  it("does not count its own rewriting as a visit", () => {
    const before = router.visits;
    lab.now.d_k = 11;
    settled();
    expect(router.visits).toBe(before);
    visit("#/learn/lab");
    expect(router.visits).toBe(before + 1);
  });
});
