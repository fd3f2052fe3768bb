/**
 * Colour of a number: the ramps of limelight's pictures, so that what is saved looks as what is seen.
 * Weights go from the surface to one warm light; scores go cool below zero.
 */
import { APART, INKS, RAMPS } from "./palette";
import { HIDDEN, HIDDEN_CHANGE } from "./schema";
import type { Theme } from "./theme.svelte";

export type Rgb = readonly [number, number, number];
export type Scale = "weight" | "signed";

const STEPS = 256;
const READABLE = 4.5; // the least contrast
const ramps = new Map<string, readonly Rgb[]>();

function ramp(theme: Theme, tone: "warm" | "cool"): readonly Rgb[] {
  const name = `${theme} ${tone}`;
  const known = ramps.get(name);
  if (known) return known;
  const digits = RAMPS[theme][tone];
  const made = Array.from({ length: STEPS }, (_, n) => rgb(digits.slice(6 * n, 6 * n + 6)));
  ramps.set(name, made);
  return made;
}

/** The colour of a value: in [0, 1] for weights, in [−1, 1] for signed. NaN is an alarm; null is hidden, or none. */
export function colour(value: number | null, theme: Theme): Rgb {
  if (value === null) return rgb(APART[theme].hidden.slice(1));
  if (Number.isNaN(value)) return rgb(APART[theme].alarm.slice(1));
  return ramp(theme, value < 0 ? "cool" : "warm")[Math.round(Math.min(1, Math.abs(value)) * (STEPS - 1))]!;
}

export const css = ([r, g, b]: Rgb): string => `rgb(${r} ${g} ${b})`;

/** The ink to write on a colour: the first that can be read. */
export function ink(background: Rgb): string {
  const shade = luminance(background) + 0.05;
  const reads = (text: string): boolean => {
    const ratio = shade / (luminance(rgb(text.slice(1))) + 0.05);
    return Math.max(ratio, 1 / ratio) >= READABLE;
  };
  return INKS.find(reads) ?? INKS[INKS.length - 1]!;
}

/** Colours RGBA pixels in place from a tile's values; the shape of a heat-map's inner loop. */
export function paint(values: ArrayLike<number>, pixels: Uint8ClampedArray, theme: Theme, gain = 1, signed = false): void {
  const warm = ramp(theme, "warm");
  const cool = ramp(theme, "cool");
  const none = signed ? HIDDEN_CHANGE : HIDDEN;
  const hidden = colour(null, theme);
  const alarm = colour(NaN, theme);
  for (let i = 0, at = 0; i < values.length; i++, at += 4) {
    const value = values[i]!;
    const lit = Math.round(Math.min(1, Math.abs(value) * gain) * (STEPS - 1));
    const [r, g, b] = value === none ? hidden : ((value < 0 ? cool : warm)[lit] ?? alarm);
    pixels[at] = r;
    pixels[at + 1] = g;
    pixels[at + 2] = b;
    pixels[at + 3] = 255;
  }
}

function rgb(digits: string): Rgb {
  const n = parseInt(digits, 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

function luminance(colour: Rgb): number {
  const [r, g, b] = colour.map((c) => {
    const s = c / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
