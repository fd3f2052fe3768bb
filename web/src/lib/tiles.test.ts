import { describe, expect, it, vi } from "vitest";
import { HIDDEN } from "./schema";
import { matrixSource, type Range, type Source, type Tile } from "./source";
import { levelFor, Tiles, topLevel } from "./tiles";

/** A source that answers when told, and remembers what it was asked. */
function slow(rows: number, columns: number) {
  const asked: { rows: Range; columns: Range; height: number; width: number; signal: AbortSignal; answer: () => void }[] = [];
  const source: Source = {
    rows,
    columns,
    id: "slow",
    tile: (down, across, height, width, signal) =>
      new Promise<Tile>((resolve) => {
        const values = new Float32Array(height * width).fill(0.5);
        const answer = (): void => resolve({ rows: down, columns: across, height, width, values });
        asked.push({ rows: down, columns: across, height, width, signal, answer });
      }),
  };
  return { source, asked };
}

const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

describe("levels", () => {
  it("the top one holds the whole matrix in one tile", () => {
    expect(topLevel(6, 6)).toBe(0);
    expect(topLevel(257, 10)).toBe(1);
    expect(topLevel(32768, 32768)).toBe(7);
  });

  it("bins are at least a pixel", () => {
    expect(levelFor(12, 7)).toBe(0);
    expect(levelFor(0.5, 7)).toBe(1);
    expect(levelFor(0.02, 7)).toBe(6);
    expect(levelFor(1e-9, 7)).toBe(7);
  });
});

describe("tiles from a server", () => {
  it("the overview comes first and stands in until finer ones arrive", async () => {
    const { source, asked } = slow(1000, 1000);
    const arrived = vi.fn();
    const tiles = new Tiles(source, arrived, () => undefined);
    expect(tiles.visible([0, 300], [0, 300], 2)).toEqual([]);
    expect(asked[0]).toMatchObject({ rows: [0, 1000], columns: [0, 1000], height: 250, width: 250 });
    expect(asked.slice(1).map((one) => [one.rows, one.columns])).toEqual([
      [[0, 256], [0, 256]], [[0, 256], [256, 512]], [[256, 512], [0, 256]], [[256, 512], [256, 512]],
    ]);
    asked[0]!.answer();
    await settle();
    expect(arrived).toHaveBeenCalledTimes(1);
    expect(tiles.visible([0, 300], [0, 300], 2).map((tile) => tile.level)).toEqual([2]);
    asked[1]!.answer();
    await settle();
    expect(tiles.visible([0, 300], [0, 300], 2).map((tile) => tile.level)).toEqual([2, 0]);
    expect(tiles.at(3, 5)).toBe(0.5);
    expect(tiles.at(300, 5)).toBeUndefined();
  });

  it("what is no longer on screen is cancelled, and never asked for twice at once", async () => {
    const { source, asked } = slow(10_000, 10_000);
    const tiles = new Tiles(source, () => undefined, () => undefined);
    tiles.visible([0, 100], [0, 100], 4);
    tiles.visible([0, 100], [0, 100], 4);
    expect(asked.length).toBe(2);
    tiles.visible([5000, 5100], [5000, 5100], 4);
    expect(asked[1]!.signal.aborted).toBe(true);
    expect(asked[0]!.signal.aborted).toBe(false); // the overview stays wanted
    asked[1]!.answer();
    await settle();
    expect(tiles.at(3, 5)).toBeUndefined();
    tiles.stop();
    expect(asked.every((one) => one.signal.aborted)).toBe(true);
  });

  it("the last tile of an uneven matrix is cut to size", () => {
    const { source, asked } = slow(300, 300);
    new Tiles(source, () => undefined, () => undefined).visible([260, 300], [260, 300], 8);
    expect(asked[1]).toMatchObject({ rows: [256, 300], columns: [256, 300], height: 44, width: 44 });
  });

  it("a failure is told once, a cancellation never", async () => {
    const failed = vi.fn();
    const source: Source = { rows: 10, columns: 10, id: "gone", tile: () => Promise.reject(new Error("gone")) };
    const tiles = new Tiles(source, () => undefined, failed);
    tiles.visible([0, 10], [0, 10], 20);
    await settle();
    expect(failed).toHaveBeenCalledTimes(1);
  });
});

describe("tiles of a matrix at hand", () => {
  it("are there at once, with its exact numbers", () => {
    const matrix = [[0.1, 0.9], [0.4, 0.6], [1, 0]];
    const tiles = new Tiles(matrixSource(matrix, [[true, false], [true, true], [true, true]]), () => undefined, () => undefined);
    const [tile] = tiles.visible([0, 3], [0, 2], 40);
    expect(tile).toMatchObject({ height: 3, width: 2, level: 0 });
    expect(tiles.at(2, 0)).toBe(1);
    expect(tiles.at(0, 1)).toBe(HIDDEN);
  });

  it("pools by maximum where bins are larger than cells", () => {
    const matrix = Array.from({ length: 6 }, (_, i) => Array.from({ length: 6 }, (_, j) => i * 6 + j));
    const tile = matrixSource(matrix).tile([0, 6], [0, 6], 2, 3, new AbortController().signal) as Tile;
    expect([...(tile.values as Float64Array)]).toEqual([13, 15, 17, 31, 33, 35]);
  });
});
