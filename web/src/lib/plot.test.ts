import { describe, expect, it } from "vitest";
import { cellAt, edge, exactly, inView, layout, tickStep, viewOf } from "./plot";

describe("layout", () => {
  it("keeps cells square, and labels flat where they fit", () => {
    const plot = layout(700, 600, 7, 7, 50, 50);
    expect(plot.width).toBe(plot.height);
    expect(plot.flat).toBe(true);
    expect(plot.left + plot.width).toBeLessThanOrEqual(700);
  });

  it("slants labels that do not fit, and leaves room for their ends", () => {
    const plot = layout(320, 600, 13, 13, 60, 60);
    expect(plot.flat).toBe(false);
    expect(plot.left + plot.width + plot.right).toBeLessThanOrEqual(320);
  });

  it("gives a narrow screen to the cells rather than to long labels", () => {
    const plot = layout(326, 600, 23, 23, 160, 160);
    expect(plot.width).toBeGreaterThan(0.6 * 326);
    expect(plot.label).toBeLessThan(plot.top);
    expect(layout(700, 600, 23, 23, 160, 160).label).toBe(112);
  });

  it("limits how narrow a long matrix gets", () => {
    const plot = layout(700, 600, 1000, 10, 40, 40);
    expect(plot.height / plot.width).toBeCloseTo(3, 1);
    expect(plot.height).toBeLessThanOrEqual(600);
  });

  it("survives an empty matrix", () => {
    expect(layout(700, 600, 0, 0, 16, 16).width).toBeGreaterThan(0);
  });
});

describe("pixels and cells", () => {
  it("are inverse to each other, at any zoom", () => {
    for (const [k, shift] of [[1, 0], [3.7, -211], [40, -9000]] as const) {
      for (const index of [0, 5, 31]) {
        const middle = (edge(index, 32, 500, k, shift) + edge(index + 1, 32, 500, k, shift)) / 2;
        expect(cellAt(middle, 32, 500, k, shift)).toBe(index);
      }
    }
  });

  it("outside the map the nearest cell counts", () => {
    expect(cellAt(-50, 8, 400, 1, 0)).toBe(0);
    expect(cellAt(1e6, 8, 400, 1, 0)).toBe(7);
  });

  it("sees what is on screen and nothing else", () => {
    expect(inView(100, 500, 1, 0)).toEqual([0, 100]);
    expect(inView(100, 500, 10, -1000)).toEqual([20, 30]);
  });
});

describe("a window that is asked for", () => {
  const plot = layout(700, 600, 1000, 1000, 40, 40);

  it("is shown, centred", () => {
    const view = viewOf(plot, [1000, 1000], [400, 410], [700, 710], 1e3);
    expect(inView(1000, plot.height, view.k, view.y)).toEqual([400, 410]);
    expect(inView(1000, plot.width, view.k, view.x)).toEqual([700, 710]);
  });

  it("comes back to the pixel when it is what was in view", () => {
    const view = { k: 7.3, x: -1203.25, y: -411.5 };
    const rows = exactly(1000, plot.height, view.k, view.y);
    const columns = exactly(1000, plot.width, view.k, view.x);
    const again = viewOf(plot, [1000, 1000], rows, columns, 1e3);
    for (const name of ["k", "x", "y"] as const) expect(again[name]).toBeCloseTo(view[name], 6);
  });

  it("does not leave the matrix at its corner", () => {
    const view = viewOf(plot, [1000, 1000], [-20, 20], [-20, 20], 1e3);
    expect(view.x).toBe(0);
    expect(view.y).toBe(0);
  });
});

it("ticks are round numbers far enough apart", () => {
  expect(tickStep(100)).toBe(1);
  expect(tickStep(10, 64)).toBe(10);
  expect(tickStep(0.5, 64)).toBe(200);
  expect(tickStep(0.02, 64)).toBe(5000);
});
