/**
 * A capture as data in the page (limelight/views/bundle.py): pooled maps of every head, vectors of
 * those that found room. Arrays are base64 of zlib of little-endian numbers.
 */
import { cell as cellOf, trace, type Trace } from "$lib/attention";
import {
  HIDDEN, HIDDEN_16, LEAST, LIT_16, NAN_16,
  type BundleData, type CellData, type LinesData, type Packed, type Real, type Side, type StripData,
} from "$lib/schema";
import type { Source } from "$lib/source";
import { keyOf, once, rowsOf, siteOf, tokensOf, type HeadAt, type Provider } from "../explore/provider";

/** Cells up to which a head's map is worked out from its vectors, once and whole. */
const WHOLE = 256 * 256;

/** The numbers of a packed array, row by row. */
export async function unpack({ dtype, data }: Packed): Promise<ArrayLike<number>> {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const plain = await new Response(stream).arrayBuffer();
  const view = new DataView(plain);
  switch (dtype) {
    case "u1": return new Uint8Array(plain);
    case "u2": return Uint16Array.from({ length: plain.byteLength / 2 }, (_, n) => view.getUint16(2 * n, true));
    case "f4": return Float32Array.from({ length: plain.byteLength / 4 }, (_, n) => view.getFloat32(4 * n, true));
    case "f2": return Float64Array.from({ length: plain.byteLength / 2 }, (_, n) => half(view.getUint16(2 * n, true)));
  }
}

/** A weight of a map by its 16 bits. */
export function decoded(code: number): number {
  if (code === HIDDEN_16) return HIDDEN;
  return code === NAN_16 ? NaN : (code / LIT_16) ** 2;
}

/** A number as it travels. */
const real = (value: number): Real => (Number.isFinite(value) ? value : null);

/** A float16 by its bits. */
export function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Everything of one head whose vectors are at hand, read when first asked for. */
interface Head {
  readonly query: readonly (readonly number[])[];
  readonly key: readonly (readonly number[])[];
  readonly value: readonly (readonly number[])[] | null;
  readonly bias: readonly (readonly number[])[] | null;
  readonly sink: number | null;
  allowed(row: number, column: number): boolean;
}

export function bundleProvider(bundle: BundleData): Provider {
  const info = bundle.capture;
  const arrays = new Map<string, Promise<ArrayLike<number>>>();
  const heads = new Map<string, Promise<Head | null>>();
  const maps = new Map<number, Promise<ArrayLike<number>>>();
  const rows = new Map<string, Promise<Trace>>();

  const array = (name: string): Promise<ArrayLike<number>> => keep(arrays, name, () => unpack(bundle.vectors.arrays[name]!));
  const map = (site: number): Promise<ArrayLike<number>> => keep(maps, site, () => unpack(bundle.maps[site]!));

  const head = (at: HeadAt): Promise<Head | null> =>
    keep(heads, keyOf(at), async () => {
      const parts = bundle.vectors.heads[keyOf(at)];
      if (!parts) return null;
      const site = siteOf(info, at.site);
      const matrix = async (name: string, size: number): Promise<number[][]> => {
        const flat = await array(name);
        return Array.from({ length: size ? flat.length / size : 0 }, (_, n) =>
          Array.from({ length: size }, (_, c) => flat[n * size + c]!),
        );
      };
      const bits = parts.mask ? await array(parts.mask) : null;
      const bias = parts.bias ? await matrix(parts.bias, site.keys) : null;
      return {
        query: await matrix(parts.query, site.head_size),
        key: await matrix(parts.key, site.head_size),
        value: parts.value ? await matrix(parts.value, site.value_size) : null,
        bias,
        sink: parts.sink,
        allowed(row: number, column: number) {
          const place = row * site.keys + column;
          return (!bits || ((bits[place >> 3]! >> (7 - (place & 7))) & 1) === 1) && bias?.[row]?.[column] !== -Infinity;
        },
      };
    });

  /** One row of a head, every step of it. */
  const rowOf = (at: HeadAt, found: Head, row: number): Promise<Trace> =>
    keep(rows, `${keyOf(at)}.${row}`, async () => {
      if (rows.size > 512) rows.clear();
      return trace([found.query[row]!], found.key, found.value, options(at, found, [row]));
    });

  function options(at: HeadAt, found: Head, which: readonly number[]): Parameters<typeof trace>[3] {
    const { scale, softcap, keys } = siteOf(info, at.site);
    return {
      scale: scale ?? NaN,
      softcap,
      sink: found.sink,
      bias: found.bias && which.map((row) => found.bias![row]!),
      mask: which.map((row) => Array.from({ length: keys }, (_, column) => found.allowed(row, column))),
    };
  }

  /** A pooled map as a source: bins are looked up, never refined. */
  function pooled(at: HeadAt): Source {
    const { queries, keys } = siteOf(info, at.site);
    const [, height = 1, width = 1] = bundle.maps[at.site]!.shape;
    return {
      rows: queries,
      columns: keys,
      id: `pooled ${keyOf(at)}`,
      async tile(down, across, tall, wide) {
        const flat = await map(at.site);
        const begin = at.head * height * width;
        const values = new Float32Array(tall * wide);
        for (let i = 0; i < tall; i++) {
          const row = Math.min(height - 1, Math.floor(((down[0] + ((i + 0.5) * (down[1] - down[0])) / tall) / queries) * height));
          for (let j = 0; j < wide; j++) {
            const column = Math.min(width - 1, Math.floor(((across[0] + ((j + 0.5) * (across[1] - across[0])) / wide) / keys) * width));
            const code = flat[begin + row * width + column]!;
            values[i * wide + j] = decoded(code);
          }
        }
        return { rows: down, columns: across, height: tall, width: wide, values };
      },
    };
  }

  /** The exact map, worked out from the vectors. */
  function exact(at: HeadAt): Source {
    const { queries, keys } = siteOf(info, at.site);
    const fallback = pooled(at);
    let weights: Promise<Float32Array> | null = null;
    const whole = async (): Promise<Float32Array> => {
      const found = (await head(at))!;
      const table = new Float32Array(queries * keys).fill(HIDDEN);
      for (let row = 0; row < queries; row++) {
        const done = trace([found.query[row]!], found.key, null, options(at, found, [row]));
        done.weights[0]!.forEach((weight, column) => {
          if (done.allowed[0]![column]) table[row * keys + column] = weight;
        });
      }
      return table;
    };
    return {
      rows: queries,
      columns: keys,
      id: `exact ${keyOf(at)}`,
      async tile(down, across, tall, wide, signal) {
        if (tall < down[1] - down[0] || wide < across[1] - across[0]) return fallback.tile(down, across, tall, wide, signal);
        const table = await (weights ??= whole());
        const values = new Float32Array(tall * wide);
        for (let i = 0; i < tall; i++) {
          const row = down[0] + Math.floor((i * (down[1] - down[0])) / tall);
          for (let j = 0; j < wide; j++) {
            values[i * wide + j] = table[row * keys + across[0] + Math.floor((j * (across[1] - across[0])) / wide)]!;
          }
        }
        return { rows: down, columns: across, height: tall, width: wide, values };
      },
    };
  }

  async function strip(at: HeadAt, side: Side, index: number): Promise<StripData | null> {
    const found = await head(at);
    if (!found) return null;
    const site = siteOf(info, at.site);
    const texts = tokensOf(info, site, 0);
    let values: readonly number[];
    if (side === "row") {
      const done = await rowOf(at, found, index);
      values = done.weights[0]!.map((weight, column) => (done.allowed[0]![column] ? weight : HIDDEN));
    } else {
      if (site.queries * site.keys > WHOLE) return null;
      const table = await Promise.all(Array.from({ length: site.queries }, (_, row) => rowOf(at, found, row)));
      values = table.map((done) => (done.allowed[0]![index] ? done.weights[0]![index]! : HIDDEN));
    }
    const [mine, theirs] = side === "row" ? [texts.queries, texts.keys] : [texts.keys, texts.queries];
    const known = (n: number): number => (values[n]! > 0 ? values[n]! : 0);
    const order = values.map((_, n) => n).sort((a, b) => known(b) - known(a));
    return {
      side,
      index,
      token: mine[index] ?? String(index),
      length: values.length,
      values: values.map(real),
      top: order.slice(0, 8).flatMap((n) => (known(n) ? [{ index: n, token: theirs[n] ?? String(n), weight: known(n) }] : [])),
      total: real(values.reduce((sum, value) => (value === HIDDEN ? sum : sum + value), 0)),
    };
  }

  return {
    info,
    batch: 0,
    pools: ["max"],
    picture: bundle.capture.picture,
    async health(arrived) {
      for (const row of rowsOf(bundle.health)) arrived(row);
    },
    findings: async () => bundle.findings,
    kinds: async () => bundle.kinds,
    source: once((at) => {
      const { queries, keys } = siteOf(info, at.site);
      return isComplete(bundle, at) && queries * keys <= WHOLE ? exact(at) : pooled(at);
    }),
    async cell(at, row, column): Promise<CellData | null> {
      const found = await head(at);
      if (!found) return null;
      const texts = tokensOf(info, siteOf(info, at.site), 0);
      const done = await rowOf(at, found, row);
      const made = cellOf(done, 0, column, [texts.queries[row] ?? "", texts.keys[column] ?? ""]);
      return { ...made, row, head: at.head, batch: bundle.batch };
    },
    strips: (at, side) => {
      const { queries, keys } = siteOf(info, at.site);
      return isComplete(bundle, at) && (side === "row" || queries * keys <= WHOLE);
    },
    strip,
    async lines(at, [from, to], k): Promise<LinesData | null> {
      const found = await head(at);
      if (!found) return null;
      const lines = { rows: [] as number[], columns: [] as number[], weights: [] as number[] };
      for (let row = from; row < to; row++) {
        const weights = (await rowOf(at, found, row)).weights[0]!;
        const order = weights.map((_, n) => n).sort((a, b) => weights[b]! - weights[a]!).slice(0, k);
        for (const column of order.filter((n) => weights[n]! >= LEAST)) {
          lines.rows.push(row);
          lines.columns.push(column);
          lines.weights.push(weights[column]!);
        }
      }
      return lines;
    },
  };
}

/** Whether the vectors of a head are in the bundle. */
export const isComplete = (bundle: BundleData, at: HeadAt): boolean => keyOf(at) in bundle.vectors.heads;

function keep<K, V>(kept: Map<K, V>, key: K, make: () => V): V {
  const known = kept.get(key);
  if (known !== undefined) return known;
  const made = make();
  kept.set(key, made);
  return made;
}
