import { describe, expect, it } from "vitest";
import { colour, ink, paint, type Rgb } from "./colour";
import { HIDDEN } from "./schema";

const channel = (c: number): number => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]: Rgb): number => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const hex = (text: string): Rgb => [1, 3, 5].map((n) => parseInt(text.slice(n, n + 2), 16)) as unknown as Rgb;

describe.each(["light", "dark"] as const)("in the %s theme", (theme) => {
  it.each([1, -1])("lightness changes steadily with the number (sign %d), so that it reads in grey", (sign) => {
    const shades = Array.from({ length: 41 }, (_, n) => luminance(colour((sign * n) / 40, theme)));
    const way = Math.sign(shades[40]! - shades[0]!);
    for (let n = 1; n < shades.length; n++) expect(way * (shades[n]! - shades[n - 1]!)).toBeGreaterThan(-1e-9);
  });

  it("what is written on a colour can be read", () => {
    for (let n = -40; n <= 40; n++) {
      const background = colour(n / 40, theme);
      const [dark, light] = [luminance(background), luminance(hex(ink(background)))].sort((a, b) => a - b);
      expect((light! + 0.05) / (dark! + 0.05), String(n / 40)).toBeGreaterThan(4.5);
    }
  });

  it("a tile is painted as its numbers are coloured, and what has no number apart", () => {
    const values = [0, 0.3, 1, 7];
    const pixels = new Uint8ClampedArray((values.length + 2) * 4);
    paint([...values, HIDDEN, NaN], pixels, theme);
    [...values, null, NaN].forEach((value, n) => expect([...pixels.slice(4 * n, 4 * n + 4)]).toEqual([...colour(value, theme), 255]));
    expect(colour(null, theme)).not.toEqual(colour(NaN, theme));
  });
});
