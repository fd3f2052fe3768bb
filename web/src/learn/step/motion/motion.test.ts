import { describe, expect, it } from "vitest";
import golden from "../../../../golden/attention.json";
import { trace, type Matrix } from "$lib/attention";
import type { CellData } from "$lib/api";
import { between, eased, motion, type Flow, type Pour, type Slide } from "./motion";

interface Figures {
  query: Matrix;
  key: Matrix;
  value: Matrix;
  raw: Matrix;
  scaled: Matrix;
  allowed: boolean[][];
  logits: (number | null)[][];
  weights: Matrix;
  output: Matrix;
  cells: CellData[][];
}

const cases = Object.entries(golden as unknown as Record<string, Figures>).filter(([name]) =>
  ["worked example", "plain", "causal", "one key"].includes(name),
);

function near(mine: unknown, theirs: unknown): void {
  const a = [mine].flat(2) as (number | null)[];
  const b = [theirs].flat(2) as (number | null)[];
  expect(a.length).toBe(b.length);
  a.forEach((x, n) => {
    if (b[n] === null || x === null) expect(x).toBe(b[n]);
    else expect(Math.abs(x - b[n]!)).toBeLessThanOrEqual(1e-13 + 4e-13 * Math.abs(b[n]!));
  });
}

describe.each(cases)("%s: what moves is the library's at every stop", (_, given) => {
  const done = trace(given.query, given.key, given.value, { mask: given.allowed });
  const words = given.key.map((_, j) => `w${j}`);
  const toy = {
    words, trace: done, x: given.query, query: given.query, key: given.key, value: given.value,
    w: { query: given.query, key: given.key, value: given.value },
  };
  const rows = given.query.map((_, row) => row);
  const of = (stage: Parameters<typeof motion>[0], row: number) => {
    const found = motion(stage, toy, { table: "query", row })!;
    return { ...found, stops: found.said.length - 1 };
  };

  it.each(rows)("row %i slides over every key and leaves the library's scores", (row) => {
    const { picture, stops } = of("compare", row);
    const { products, sums } = picture as Slide;
    expect(stops).toBe(words.length);
    near(sums, given.raw[row]);
    near(products, given.cells[row]!.map(({ products }) => products));
  });

  it.each(rows)("row %i is scaled, hidden, shifted, raised and shared", (row) => {
    near((of("scale", row).picture as Pour).stops, [given.raw[row], given.scaled[row]]);
    near((of("mask", row).picture as Pour).stops, [given.scaled[row], given.logits[row]]);
    const { stops, sum } = of("normalise", row).picture as Pour;
    const cells = given.cells[row]!;
    near(stops[0], given.logits[row]);
    near(stops[1], cells.map(({ logit, row_max }) => (logit === null ? null : logit - row_max!)));
    near(stops[2], cells.map(({ exponential }) => exponential));
    near(stops[3], given.weights[row]);
    near(sum, cells[0]!.row_sum);
  });

  it.each(rows)("row %i collects the contributions until they are the output", (row) => {
    const { sums } = of("mix", row).picture as Flow;
    const taken = given.cells[row]!.map(({ contribution }) => contribution as number[]);
    for (let j = 0; j <= taken.length; j++) {
      near(sums[j], given.value[0]!.map((_, c) => taken.slice(0, j).reduce((sum, part) => sum + part[c]!, 0)));
    }
    near(sums.at(-1), given.output[row]);
  });
});

describe("between two stops", () => {
  it("a motion stands still at its stops and is halfway in the middle", () => {
    expect(eased(2)).toEqual({ from: 2, to: 2, part: 0 });
    expect(eased(1.5)).toEqual({ from: 1, to: 2, part: 0.5 });
    expect(between(2, 6, 0.25)).toBe(3);
  });
});
