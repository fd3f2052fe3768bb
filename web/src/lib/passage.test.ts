import { describe, expect, it } from "vitest";
import { blocks, isCode, pieces } from "./passage";

const whole = (tokens: string[]): string => pieces(tokens).map(({ lead, text }) => lead + text).join("");

describe("a text of tokens", () => {
  it("reads as the text does", () => {
    expect(whole(["The", " curious", " cat", "."])).toBe("The curious cat.");
    expect(whole(["▁The", "▁cat"])).toBe(" The cat");
    expect(whole(["[CLS]", "the", "cat", "##fish", ",", "[SEP]"])).toBe("[CLS] the catfish, [SEP]");
    expect(whole(["if", " x", ":", "\n   ", " y"])).toBe("if x:⏎\n    y");
    expect(whole(["a\u202eb"])).toBe("a\ufffdb");
  });

  it("marks a word without the blank before it, and a blank that is all there is", () => {
    expect(pieces([" cat", " "])).toEqual([{ lead: " ", text: "cat" }, { lead: "", text: " " }]);
  });

  it("knows code by its indentation", () => {
    expect(isCode(["def f():", "\n", "    ", "return"])).toBe(true);
    expect(isCode(["To be", "\n", "or not"])).toBe(false);
  });

  it("is cut into blocks that hold every token once, after lines where there are some", () => {
    const tokens = Array.from({ length: 1000 }, (_, n) => (n % 100 === 99 ? "\n" : "x"));
    const cut = blocks(pieces(tokens));
    expect(cut[0]).toEqual([0, 200]);
    expect(cut.at(-1)![1]).toBe(1000);
    cut.slice(1).forEach(([from], n) => expect(from).toBe(cut[n]![1]));
    expect(blocks([])).toEqual([]);
  });
});
