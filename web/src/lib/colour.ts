/**
 * Colour of a number. Weights go from the surface to one warm light; scores go cool below zero.
 * Both ramps change lightness steadily, so they read in grey too. Each colour comes with the ink to
 * write on it (contrast at least 4.5).
 */
import type { Theme } from "./theme.svelte";

export type Rgb = readonly [number, number, number];
export type Scale = "weight" | "signed";

type Stops = readonly (readonly [at: number, hex: string])[];

const WARM: Record<Theme, Stops> = {
  light: [[0, "#f8f6f1"], [0.04, "#fdf1d6"], [0.25, "#fddf9b"], [0.5, "#fac04c"], [0.75, "#ee981a"], [1, "#cc6200"]],
  dark: [[0, "#191714"], [0.04, "#2a2014"], [0.25, "#5c3a0e"], [0.5, "#a5650f"], [0.75, "#f0a62c"], [1, "#fff1c9"]],
};
const COOL: Record<Theme, Stops> = {
  light: [[0, "#f8f6f1"], [0.25, "#cfe0f0"], [0.5, "#8db5db"], [0.75, "#4d84bb"], [1, "#1d4a7c"]],
  dark: [[0, "#191714"], [0.25, "#1a3247"], [0.5, "#27567f"], [0.75, "#5596d0"], [1, "#cbe5fb"]],
};
/** Where no cell is allowed: neither warm nor cool. */
const HIDDEN: Record<Theme, Rgb> = { light: [226, 222, 213], dark: [11, 10, 9] };

/** Each with its luminance + 0.05, as contrast is reckoned. */
const INKS = [["#14120f", 0.0561], ["#ffffff", 1.05]] as const;

const STEPS = 256;
const tables = new Map<string, Uint8ClampedArray>();

/** 256 colours, RGBA, from 0 to 1; made once. */
export function table(theme: Theme, tone: "warm" | "cool"): Uint8ClampedArray {
  const name = `${theme} ${tone}`;
  const known = tables.get(name);
  if (known) return known;
  const stops = (tone === "warm" ? WARM : COOL)[theme].map(([at, hex]) => [at, rgb(hex)] as const);
  const made = new Uint8ClampedArray(STEPS * 4);
  for (let n = 0; n < STEPS; n++) made.set([...between(stops, n / (STEPS - 1)), 255], n * 4);
  tables.set(name, made);
  return made;
}

/** The colour of a value: in [0, 1] for weights, in [−1, 1] for signed. NaN is hidden. */
export function colour(value: number, theme: Theme): Rgb {
  if (Number.isNaN(value)) return HIDDEN[theme];
  const ramp = table(theme, value < 0 ? "cool" : "warm");
  const n = Math.round(Math.min(1, Math.abs(value)) * (STEPS - 1)) * 4;
  return [ramp[n]!, ramp[n + 1]!, ramp[n + 2]!];
}

export const css = ([r, g, b]: Rgb): string => `rgb(${r} ${g} ${b})`;

/** The ink to write on a colour: soft black, white, or full black where only that can be read. */
export function ink(background: Rgb): string {
  const shade = luminance(background) + 0.05;
  return INKS.find(([, ink]) => Math.max(shade / ink, ink / shade) >= 4.5)?.[0] ?? "#000000";
}

/** Colours RGBA pixels in place from values; the shape of a heat-map's inner loop. */
export function paint(values: ArrayLike<number>, pixels: Uint8ClampedArray, theme: Theme, gain = 1): void {
  const warm = table(theme, "warm");
  const cool = table(theme, "cool");
  const hidden = HIDDEN[theme];
  for (let i = 0, at = 0; i < values.length; i++, at += 4) {
    const value = values[i]! * gain;
    if (Number.isNaN(value)) {
      pixels.set(hidden, at);
    } else {
      const ramp = value < 0 ? cool : warm;
      const n = Math.round(Math.min(1, Math.abs(value)) * (STEPS - 1)) * 4;
      pixels[at] = ramp[n]!;
      pixels[at + 1] = ramp[n + 1]!;
      pixels[at + 2] = ramp[n + 2]!;
    }
    pixels[at + 3] = 255;
  }
}

function rgb(hex: string): Rgb {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

function between(stops: readonly (readonly [number, Rgb])[], x: number): Rgb {
  const next = Math.max(1, stops.findIndex(([at]) => at >= x));
  const [from, a] = stops[next - 1]!;
  const [to, b] = stops[next]!;
  const t = (x - from) / (to - from);
  return [0, 1, 2].map((c) => Math.round(a[c]! + (b[c]! - a[c]!) * t)) as unknown as Rgb;
}

function luminance(colour: Rgb): number {
  const [r, g, b] = colour.map((c) => {
    const s = c / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
