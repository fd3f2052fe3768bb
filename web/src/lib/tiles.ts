/**
 * The part of a matrix that is on screen, as tiles of pooled bins. Level z has bins of 2^z × 2^z
 * cells; a tile is 256 bins a side, as in limelight/looking/pyramid.py. Coarse tiles stand in until fine ones arrive; requests for what
 * is no longer on screen are cancelled.
 */
import { TILE_SIDE as SIDE } from "./schema";
import type { Range, Source, Tile } from "./source";

const MOST = 128; // tiles kept; one is up to half a MiB with its image

export interface Placed extends Tile {
  readonly level: number;
  /** The tile's colours, painted by the view; dropped when the theme changes. */
  image: HTMLCanvasElement | null;
}

export class Tiles {
  readonly #source: Source;
  readonly #arrived: () => void;
  readonly #failed: (error: unknown) => void;
  readonly #kept = new Map<string, Placed>();
  readonly #asked = new Map<string, AbortController>();
  readonly top: number;

  constructor(source: Source, arrived: () => void, failed: (error: unknown) => void) {
    this.#source = source;
    this.#arrived = arrived;
    this.#failed = failed;
    this.top = topLevel(source.rows, source.columns);
  }

  /** The tiles to draw for a window, coarse first; asks for those that are missing. */
  visible(rows: Range, columns: Range, cellPixels: number): Placed[] {
    const level = levelFor(cellPixels, this.top);
    const wanted = new Map<string, [z: number, i: number, j: number]>();
    wanted.set(name(this.top, 0, 0), [this.top, 0, 0]); // the overview always stands behind
    for (const i of indices(rows, level)) for (const j of indices(columns, level)) wanted.set(name(level, i, j), [level, i, j]);

    for (const [key, controller] of this.#asked) {
      if (!wanted.has(key)) {
        controller.abort();
        this.#asked.delete(key);
      }
    }
    for (const [key, at] of wanted) if (!this.#kept.has(key) && !this.#asked.has(key)) this.#ask(key, ...at);

    const shown = [...this.#kept.values()].filter((tile) => overlap(tile.rows, rows) && overlap(tile.columns, columns));
    return shown.filter((tile) => tile.level >= level).sort((a, b) => b.level - a.level);
  }

  /** Whether nothing of it has come. */
  get empty(): boolean {
    return this.#kept.size === 0;
  }

  /** How many of the overview's weights are above the given one, and how many there are; null until it has come. */
  above(least: number): readonly [number, number] | null {
    const whole = this.#kept.get(name(this.top, 0, 0));
    if (!whole) return null;
    let [over, all] = [0, 0];
    for (let n = 0; n < whole.values.length; n++) {
      const value = whole.values[n]!;
      if (!(value >= 0)) continue;
      all++;
      if (value > least) over++;
    }
    return [over, all];
  }

  /** The exact weight of a cell where its tile is at hand; undefined where only pooled bins are. */
  at(row: number, column: number): number | undefined {
    const tile = this.#kept.get(name(0, Math.floor(row / SIDE), Math.floor(column / SIDE)));
    return tile?.values[(row - tile.rows[0]) * tile.width + column - tile.columns[0]];
  }

  repaint(): void {
    for (const tile of this.#kept.values()) tile.image = null;
  }

  stop(): void {
    for (const controller of this.#asked.values()) controller.abort();
    this.#asked.clear();
  }

  #ask(key: string, level: number, i: number, j: number): void {
    const { rows, columns } = this.#source;
    const down = span(i, level, rows);
    const across = span(j, level, columns);
    const bin = 2 ** level;
    const height = Math.ceil((down[1] - down[0]) / bin);
    const width = Math.ceil((across[1] - across[0]) / bin);
    const controller = new AbortController();
    const keep = (tile: Tile): void => {
      this.#kept.set(key, { ...tile, level, image: null });
      for (const old of this.#kept.keys()) {
        if (this.#kept.size <= MOST) break;
        if (old !== name(this.top, 0, 0)) this.#kept.delete(old);
      }
    };
    const tile = this.#source.tile(down, across, height, width, controller.signal);
    if (!(tile instanceof Promise)) return keep(tile);
    this.#asked.set(key, controller);
    tile
      .then((arrived) => {
        if (controller.signal.aborted) return;
        keep(arrived);
        this.#arrived();
      })
      .catch((error: unknown) => {
        if (!controller.signal.aborted) this.#failed(error);
      })
      .finally(() => {
        if (this.#asked.get(key) === controller) this.#asked.delete(key);
      });
  }
}

/** The level at which the whole matrix is one tile. */
export function topLevel(rows: number, columns: number): number {
  return Math.max(0, Math.ceil(Math.log2(Math.max(1, rows, columns) / SIDE)));
}

/** The level whose bins are at least one pixel. */
export function levelFor(cellPixels: number, top: number): number {
  return Math.min(top, Math.max(0, Math.ceil(-Math.log2(cellPixels))));
}

function span(index: number, level: number, count: number): Range {
  const size = SIDE * 2 ** level;
  return [index * size, Math.min(count, (index + 1) * size)];
}

function indices([from, to]: Range, level: number): number[] {
  const size = SIDE * 2 ** level;
  const first = Math.floor(from / size);
  return Array.from({ length: Math.max(0, Math.ceil(to / size) - first) }, (_, n) => first + n);
}

const overlap = (a: Range, b: Range): boolean => a[0] < b[1] && b[0] < a[1];
const name = (level: number, i: number, j: number): string => `${level} ${i} ${j}`;
