/**
 * Where a heat-map gets its numbers: a small matrix at hand, or tiles from the server for a matrix
 * of any size. A tile is a pooled view of a rectangle; the view asks only for what is on screen.
 */
import { getFloats, headPath } from "./api";
import type { Matrix } from "./attention";
import { HIDDEN, type Lit, type Pool } from "./schema";

export type Range = readonly [from: number, to: number];

export interface Tile {
  readonly rows: Range;
  readonly columns: Range;
  /** Bins down and across. */
  readonly height: number;
  readonly width: number;
  /** height × width, row by row; HIDDEN where no cell is allowed, NaN where a weight is not a number. */
  readonly values: ArrayLike<number>;
}

export interface Source {
  readonly rows: number;
  readonly columns: number;
  /** Sources of one id have the same numbers, and share what has been fetched. */
  readonly id: string;
  /** Whether its numbers are differences, from −1 to 1, and HIDDEN_CHANGE where there is none. */
  readonly signed?: boolean;
  tile(rows: Range, columns: Range, height: number, width: number, signal: AbortSignal): Promise<Tile> | Tile;
}

let made = 0;

/** A matrix at hand: every tile is its exact cells, or their maximum where bins are larger. */
export function matrixSource(matrix: Matrix, allowed?: readonly (readonly boolean[])[]): Source {
  const size = { rows: matrix.length, columns: matrix[0]?.length ?? 0 };
  return {
    ...size,
    id: `matrix ${++made}`,
    tile(rows, columns, height, width) {
      const values = new Float64Array(height * width).fill(HIDDEN);
      for (let i = rows[0]; i < rows[1]; i++) {
        for (let j = columns[0]; j < columns[1]; j++) {
          if (allowed && !allowed[i]![j]) continue;
          const at = bin(i, rows, height) * width + bin(j, columns, width);
          const value = matrix[i]![j]!;
          values[at] = Math.max(values[at]!, value);
        }
      }
      return { rows, columns, height, width, values };
    },
  };
}

export interface ServerMap {
  readonly capture: string;
  readonly site: number;
  readonly head: number;
  readonly batch?: number;
  readonly rows: number;
  readonly columns: number;
  readonly pool?: Pool;
  readonly lit?: Lit;
}

/** Tiles of one head of a capture. */
export function serverSource(map: ServerMap): Source {
  const { capture, site, head, batch = 0, pool = "max", lit = "weight" } = map;
  return {
    rows: map.rows,
    columns: map.columns,
    id: JSON.stringify([capture, site, head, batch, pool, lit]),
    async tile(rows, columns, height, width, signal) {
      const query = new URLSearchParams({
        rows: rows.join(":"),
        columns: columns.join(":"),
        height: String(height),
        width: String(width),
        pool,
        batch: String(batch),
        ...(lit === "weight" ? {} : { lit }),
      });
      const { values, cells } = await getFloats(`${headPath(capture, site, head)}/tile?${query}`, signal);
      // The bins are the server's: the last ones of a tile may reach past the edge.
      const [down, across] = cells.split(",").map((part) => part.split(":").map(Number) as unknown as Range);
      return { rows: down ?? rows, columns: across ?? columns, height, width, values };
    },
  };
}

export interface Against {
  readonly capture: string;
  readonly site: number;
  readonly head: number;
  readonly batch: number;
}

/** What asks for the second head, in an address. */
export const againstQuery = (first: Against, second: Against): Record<string, string> => ({
  batch: String(first.batch), other: second.capture, other_site: String(second.site), other_head: String(second.head),
  other_batch: String(second.batch),
});

/** Tiles of what a second head looks at more, and less, than a first. */
export function differenceSource(first: Against, second: Against, rows: number, columns: number): Source {
  return {
    rows,
    columns,
    signed: true,
    id: JSON.stringify(["difference", first, second]),
    async tile(down, across, height, width, signal) {
      const query = new URLSearchParams({
        ...againstQuery(first, second), rows: down.join(":"), columns: across.join(":"), height: String(height), width: String(width),
      });
      const { values } = await getFloats(`${headPath(first.capture, first.site, first.head)}/against/tile?${query}`, signal);
      return { rows: down, columns: across, height, width, values };
    },
  };
}

function bin(index: number, [from, to]: Range, bins: number): number {
  return Math.floor(((index - from) * bins) / (to - from));
}
