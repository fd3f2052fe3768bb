// @vitest-environment happy-dom
import { flushSync, mount, unmount } from "svelte";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { colour, css } from "$lib/colour";
import { theme } from "$lib/theme.svelte";
import HeadGrid from "./HeadGrid.svelte";

const VALUES = [
  [0, 0.5, 1],
  [0.25, null, 2],
];

let view: Record<string, unknown> | null = null;
const chosen = vi.fn();
const pointed = vi.fn();

function draw(props: Record<string, unknown> = {}): HTMLButtonElement[] {
  view = mount(HeadGrid, {
    target: document.body,
    props: { values: VALUES, label: "Heads", rowLabels: ["3", "11"], onselect: chosen, onpoint: pointed, ...props },
  });
  flushSync();
  return [...document.querySelectorAll("button")];
}

beforeEach(() => {
  chosen.mockClear();
  pointed.mockClear();
});

afterEach(() => {
  if (view) void unmount(view);
  view = null;
  document.body.replaceChildren();
});

const press = (key: string): void => {
  document.activeElement!.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  flushSync();
};
const place = (): string | null => document.activeElement!.getAttribute("data-at");

describe("the grid of heads", () => {
  it("names every head by layer, head and figure", () => {
    const names = draw().map((button) => button.getAttribute("aria-label"));
    expect(names.slice(0, 2)).toEqual(["layer 3, head 0: 0", "layer 3, head 1: 0.500000"]);
    expect(names[4]).toBe("layer 11, head 1: NaN");
  });

  it("colours from the dark end to the lit one, held within them; without a figure as nothing", () => {
    const shade = (x: number | null): string => css(colour(x, theme.now));
    const seen = draw().map((button) => button.style.backgroundColor);
    expect(seen).toEqual([0, 0.5, 1, 0.25, null, 1].map(shade));
  });

  it("colours the other way round where little is of concern", () => {
    const shade = (x: number | null): string => css(colour(x, theme.now));
    const seen = draw({ from: 1, to: 0 }).map((button) => button.style.backgroundColor);
    expect(seen).toEqual([1, 0.5, 0, 0.75, null, 0].map(shade));
  });

  it("is one stop of the tab key; arrows walk it and end at its edges", () => {
    const heads = draw();
    expect(heads.map((head) => head.tabIndex)).toEqual([0, -1, -1, -1, -1, -1]);
    heads[0]!.focus();
    for (const [key, at] of [
      ["ArrowRight", "0,1"], ["ArrowDown", "1,1"], ["ArrowDown", "1,1"], ["ArrowRight", "1,2"], ["ArrowRight", "1,2"],
      ["ArrowUp", "0,2"], ["ArrowUp", "0,2"], ["ArrowLeft", "0,1"],
    ] as const) {
      press(key);
      expect(place()).toBe(at);
    }
    expect(pointed).toHaveBeenLastCalledWith(0, 1);
    expect([...document.querySelectorAll("button")].map((head) => head.tabIndex)).toEqual([-1, 0, -1, -1, -1, -1]);
  });

  it("opens a head, and shows which is open", () => {
    const heads = draw({ selected: { row: 1, head: 2 } });
    expect(heads.map((head) => head.getAttribute("aria-pressed"))).toEqual(["false", "false", "false", "false", "false", "true"]);
    heads[3]!.click();
    expect(chosen).toHaveBeenCalledWith(1, 0);
  });

  it("marks those it is told to", () => {
    const heads = draw({ marked: (row: number, head: number) => row === 0 && head === 2 });
    expect(heads.map((head) => head.classList.contains("marked"))).toEqual([false, false, true, false, false, false]);
  });
});
