/** Formulas as messages write them, in pieces that a page sets: d_k, √dₖ, W_Q, e^3.5, e^(−∞). */
export type Piece = string | { readonly name: string; readonly low: string } | { readonly name: string; readonly high: string };

const INNER = String.raw`[^()]|\([^()]*\)`; // brackets hold a number that may stand in brackets of its own
const FORMULA = new RegExp(String.raw`(?<![\p{L}_])(√?[dW])(?:_(\p{L})|ₖ)(?!\p{L})|(?<!\p{L})e\^(?:\(((?:${INNER})*)\)|([−-]?\d+(?:\.\d+)?))`, "gu");

export function typeset(text: string): Piece[] {
  const pieces: Piece[] = [];
  let end = 0;
  for (const found of text.matchAll(FORMULA)) {
    const [all, name, low, bracketed, bare] = found;
    if (found.index > end) pieces.push(text.slice(end, found.index));
    pieces.push(name ? { name, low: low ?? "k" } : { name: "e", high: bracketed ?? bare ?? "" });
    end = found.index + all.length;
  }
  return end < text.length ? [...pieces, text.slice(end)] : pieces;
}

const LOW: Readonly<Record<string, string>> = { d_k: "dₖ", d_v: "dᵥ", W_O: "Wₒ" };

/** The same where no markup can stand, as in a list to choose from. */
export const flat = (text: string): string => text.replace(/[dW]_[kvO]\b/g, (name) => LOW[name] ?? name);
