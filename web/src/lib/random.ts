/** Standard normal numbers from a seed: sfc32 for the bits, Box–Muller for the shape. */
export function normals(seed: number): () => number {
  let a = 0x9e3779b9, b = 0x243f6a88, c = seed | 0, d = 1;
  const uniform = (): number => {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + t) | 0;
    return ((t >>> 0) + 0.5) / 2 ** 32; // never 0, so that its logarithm is finite
  };
  for (let n = 0; n < 16; n++) uniform(); // until every bit of the state depends on the seed
  let spare: number | null = null;
  return () => {
    if (spare !== null) {
      const kept = spare;
      spare = null;
      return kept;
    }
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    const angle = 2 * Math.PI * uniform();
    spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  };
}

/** A small stable number for a text (FNV-1a). */
export function hash(text: string): number {
  let h = 0x811c9dc5;
  for (const letter of text) h = Math.imul(h ^ letter.codePointAt(0)!, 0x01000193);
  return h >>> 0;
}
