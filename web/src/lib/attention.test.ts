import { describe, expect, it } from "vitest";
import golden from "../../golden/attention.json";
import type { CellData, Real } from "./api";
import { cell, causal, compare, softmax, trace, type Matrix } from "./attention";

interface Figures {
  query: Matrix;
  key: Matrix;
  value: Matrix;
  scale: number;
  softcap: number | null;
  sink: number | null;
  bias: Real[][] | null;
  raw: Matrix;
  scaled: Matrix;
  capped: Matrix;
  biased: Real[][];
  allowed: boolean[][];
  logits: Real[][];
  weights: Matrix;
  output: Matrix;
  health: Record<string, (number | string | null)[]>;
  cells: CellData[][];
}

/** A few roundings apart at most: only the order of sums differs. */
function same(mine: unknown, theirs: unknown, where: string): void {
  if (Array.isArray(theirs)) {
    expect(Array.isArray(mine) && mine.length, where).toBe(theirs.length);
    theirs.forEach((item, n) => same((mine as unknown[])[n], item, `${where}[${n}]`));
  } else if (typeof theirs === "number" && typeof mine === "number") {
    expect(Math.abs(mine - theirs), `${where}: ${mine} for ${theirs}`).toBeLessThanOrEqual(
      1e-13 + 4e-13 * Math.abs(theirs),
    );
  } else if (theirs === null) {
    expect(mine === null || !Number.isFinite(mine), where).toBe(true);
  } else {
    expect(mine, where).toBe(theirs);
  }
}

const HEALTH = {
  max_logit: "maxLogit", logsumexp: "logsumexp", entropy: "entropy", keys: "keys", max_prob: "maxProb",
  gradient: "gradient", spread: "spread", effective_keys: "effectiveKeys", verdict: "verdict",
} as const;

describe.each(Object.entries(golden as unknown as Record<string, Figures>))("%s", (_, given) => {
  const done = trace(given.query, given.key, given.value, {
    scale: given.scale,
    softcap: given.softcap,
    sink: given.sink,
    bias: given.bias && given.bias.map((row) => row.map((x) => x ?? -Infinity)),
    mask: given.allowed,
  });

  it("every table is the library's", () => {
    for (const name of ["raw", "scaled", "capped", "biased", "allowed", "weights", "output"] as const) {
      same(done[name], given[name], name);
    }
    same(done.rows.map((row) => row.logits), given.logits, "logits");
  });

  it("the health is the library's", () => {
    for (const [theirs, mine] of Object.entries(HEALTH)) {
      same(done.rows.map(({ health }) => health[mine]), given.health[theirs], theirs);
    }
  });

  it("every cell is the library's", () => {
    given.cells.forEach((row, i) =>
      row.forEach((theirs, j) => {
        const mine = cell(done, i, j);
        for (const name of Object.keys(theirs) as (keyof CellData)[]) {
          if (name === "bias" && theirs.allowed === false) continue; // −∞ − x there
          same(mine[name], theirs[name], `cell ${i},${j} ${name}`);
        }
      }),
    );
  });
});

describe("what the definition promises", () => {
  it("NaN behind a mask stays there", () => {
    const mask = [[true, false]];
    const done = trace([[1, 2]], [[1, 0], [NaN, 1]], [[5], [NaN]], { mask });
    expect(done.weights).toEqual([[1, 0]]);
    expect(done.output).toEqual([[5]]);
  });

  it("NaN in sight stays visible", () => {
    const done = trace([[1, 2]], [[1, 0], [NaN, 1]], [[5], [1]]);
    expect(done.output).toEqual([[NaN]]);
    expect(done.rows[0]!.health.verdict).toBe("");
  });

  it("logits of 1e20 are exact", () => {
    expect(softmax([1e20, 0, -1e20]).weights).toEqual([1, 0, 0]);
  });

  it("causal is bottom-right aligned", () => {
    expect(causal(2, 4)).toEqual([[true, true, true, false], [true, true, true, true]]);
  });

  it("compares every query with every key", () => {
    expect(compare([[2, 1]], [[2, 1], [1, 0], [0, -1]])).toEqual([[5, 2, -1]]);
  });
});
