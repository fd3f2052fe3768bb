/** A text of tokens: how each stands in the running text, and where it may be cut into blocks. */
import { clean } from "./format";

export interface Piece {
  /** Blanks before the token that are none of its mark. */
  readonly lead: string;
  readonly text: string;
}

const SPACED = /^[ ▁Ġ]|[\s▁Ċ]/;
const CLOSES = /^[.,;:!?)\]}’'%]+$/;

/** The tokens as pieces that, one after the other, are the text; words of an encoder are set apart by spaces. */
export function pieces(tokens: readonly string[]): Piece[] {
  const own = tokens.some((token) => SPACED.test(token));
  return tokens.map((token, n) => {
    const plain = clean(token.replace(/[▁Ġ]/g, " ").replace(/Ċ/g, "\n"));
    if (!own) {
      if (plain.startsWith("##") && plain.length > 2) return { lead: "", text: plain.slice(2) };
      return { lead: n === 0 || CLOSES.test(plain) ? "" : " ", text: plain || "∅" };
    }
    if (/^ \S/.test(plain)) return { lead: " ", text: plain.slice(1).replace(/\n/g, "⏎\n") };
    return { lead: "", text: plain.replace(/\n/g, "⏎\n") || "∅" };
  });
}

/** Whether a text is code, whose lines and columns mean something. */
export const isCode = (tokens: readonly string[]): boolean => /\n[ \t]+\S/.test(tokens.slice(0, 4000).join(""));

/** From where to where the blocks reach: some `most` tokens each, cut after a line where one ends in time. */
export function blocks(shown: readonly Piece[], most = 256): (readonly [number, number])[] {
  const found: (readonly [number, number])[] = [];
  for (let from = 0; from < shown.length; ) {
    let to = Math.min(shown.length, from + most);
    for (let n = to; to < shown.length && n > from + most / 2; n--) {
      if (shown[n - 1]!.text.endsWith("\n")) {
        to = n;
        break;
      }
    }
    found.push([from, to]);
    from = to;
  }
  return found;
}
