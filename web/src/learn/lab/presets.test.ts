import { expect, it } from "vitest";
import { softmax } from "$lib/attention";
import { draw } from "./draw";
import { OPENING, PRESETS, same } from "./presets";

const health = ({ d_k, scaled, keys, draw: seed }: (typeof PRESETS)[number]) =>
  softmax(draw(seed, keys).scores(d_k).map((s) => (scaled ? s / Math.sqrt(d_k) : s))).health;

it("opens on gradient 0.2190, largest weight 32.4 %, spread 95 %", () => {
  const first = PRESETS[0]!;
  expect(same(first, OPENING)).toBe(true);
  const { gradient, maxProb, spread, verdict } = health(first);
  expect([gradient.toFixed(4), (100 * maxProb).toFixed(1), (100 * spread).toFixed(0), verdict]).toEqual(
    ["0.2190", "32.4", "95", "healthy"]);
});

it("calls presets what they are", () => {
  const verdicts = Object.fromEntries(PRESETS.map((preset) => [preset.name, health(preset)]));
  expect(new Set(Object.keys(verdicts)).size).toBe(PRESETS.length);
  expect(verdicts["Eight keys, not scaled: saturated"]!.verdict).toBe("saturated");
  expect(verdicts["d_k = 4, not scaled: small enough"]!.verdict).toBe("healthy");
  const many = verdicts["64 keys: a small gradient without saturation"]!;
  expect(many.verdict).toBe("healthy");
  expect(many.gradient).toBeLessThan(0.12);
});
