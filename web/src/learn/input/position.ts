/** Sines and cosines of falling frequency: a row of numbers for each place (Vaswani et al., 2017). */
export function position(place: number, size: number): number[] {
  return Array.from({ length: size }, (_, n) => {
    const turn = place / 10000 ** ((n - (n % 2)) / size);
    return n % 2 === 0 ? Math.sin(turn) : Math.cos(turn);
  });
}
