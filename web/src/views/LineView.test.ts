// @vitest-environment happy-dom
import { flushSync, mount, unmount } from "svelte";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import LineView from "./LineView.svelte";

const WEIGHTS = [
  [1, 0, 0],
  [0.004, 0.996, 0],
  [0.25, 0.015, 0.735],
];
const WORDS = ["The", " curious", " cat"];

let view: Record<string, unknown> | null = null;
const chosen = vi.fn();

function draw(selected: number | null = null): HTMLElement {
  view = mount(LineView, {
    target: document.body,
    props: { weights: WEIGHTS, queryTokens: WORDS, keyTokens: WORDS, label: "Lines", selected, onselect: chosen },
  });
  flushSync();
  return document.querySelector<HTMLElement>('[role="group"]')!;
}

beforeEach(() => chosen.mockClear());

afterEach(() => {
  if (view) void unmount(view);
  view = null;
  document.body.replaceChildren();
});

const beams = (lines: HTMLElement): SVGPathElement[] => [...lines.querySelectorAll("path")];
const queries = (lines: HTMLElement): HTMLButtonElement[] => [...lines.querySelectorAll("button")];
const keys = (lines: HTMLElement): HTMLElement[] => [...lines.querySelectorAll<HTMLElement>(".keys li")];

describe("lines", () => {
  it("draw every weight that can be seen, as strong as it is", () => {
    const drawn = beams(draw());
    expect(drawn).toHaveLength(4); // 0, 0.004 and 0.015 are below what is drawn
    const strengths = drawn.map((beam) => Number(beam.getAttribute("stroke-opacity")));
    expect(strengths).toEqual([1, 0.996, 0.25, 0.735].map((w) => 0.08 + 0.92 * w));
    const widths = drawn.map((beam) => Number(beam.getAttribute("stroke-width")));
    expect(widths).toEqual([1, 0.996, 0.25, 0.735].map((w) => 0.75 + 5 * w));
  });

  it("go from the query's line to the key's", () => {
    const [, , third] = beams(draw());
    expect(third!.getAttribute("d")).toMatch(/^M0 65 C.* 220 13$/); // third query, first key, lines of 26
  });

  it("name each token, its space as a dot", () => {
    expect(queries(draw()).map((button) => button.textContent)).toEqual(["The", "·curious", "·cat"]);
  });

  it("of a chosen query stand alone, with their shares", () => {
    const lines = draw(2);
    expect(beams(lines)).toHaveLength(2);
    expect(queries(lines).map((button) => button.getAttribute("aria-pressed"))).toEqual(["false", "false", "true"]);
    const shares = keys(lines).map((key) => key.querySelector(".share")?.textContent ?? "");
    expect(shares).toEqual(["25\u00a0%", "2\u00a0%", "74\u00a0%"]); // 0.735 is a little above itself in binary
  });

  it("follow what is pointed at or focused, and go back after it", () => {
    const lines = draw(0);
    for (const [on, off] of [["pointerenter", "pointerleave"], ["focus", "blur"]] as const) {
      queries(lines)[2]!.dispatchEvent(new Event(on));
      flushSync();
      expect(beams(lines)).toHaveLength(2);
      queries(lines)[2]!.dispatchEvent(new Event(off));
      flushSync();
      expect(beams(lines)).toHaveLength(1);
    }
  });

  it("tell which query is chosen, and that none is when it is chosen again", () => {
    queries(draw(1))[2]!.click();
    expect(chosen).toHaveBeenLastCalledWith(2);
    queries(document.body)[1]!.click();
    expect(chosen).toHaveBeenLastCalledWith(null);
  });
});
