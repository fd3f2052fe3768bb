/** Settings of the lab that are worth a name. The first is the one it opens on. */
export const COUNTS = [2, 4, 8, 16, 32, 64] as const;

export interface Setting {
  readonly d_k: number;
  readonly scaled: boolean;
  readonly keys: (typeof COUNTS)[number];
  readonly draw: number;
}

/** A calm row: gradient 0.2190, largest weight 32.4 %, spread 95 %. */
export const OPENING: Setting = { d_k: 64, scaled: true, keys: 4, draw: 11158 };

export const PRESETS: readonly (Setting & { readonly name: string })[] = [
  { name: "A calm row: four keys, scaled", ...OPENING },
  { name: "The same row, not scaled", ...OPENING, scaled: false },
  // A draw whose collapse begins early and does not waver; others may tie now and then.
  { name: "Eight keys, scaled", d_k: 64, scaled: true, keys: 8, draw: 3 },
  { name: "Eight keys, not scaled: saturated", d_k: 64, scaled: false, keys: 8, draw: 3 },
  { name: "d_k = 4, not scaled: small enough", d_k: 4, scaled: false, keys: 8, draw: 3 },
  { name: "64 keys: a small gradient without saturation", d_k: 64, scaled: true, keys: 64, draw: 3 },
];

export const same = (one: Setting, other: Setting): boolean =>
  one.d_k === other.d_k && one.scaled === other.scaled && one.keys === other.keys && one.draw === other.draw;
