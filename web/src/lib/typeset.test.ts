import { describe, expect, it } from "vitest";
import { flat, typeset } from "./typeset";

describe("formulas in a sentence", () => {
  it.each([
    ["with W_Q, W_K and √d_k.", ["with ", { name: "W", low: "Q" }, ", ", { name: "W", low: "K" }, " and ", { name: "√d", low: "k" }, "."]],
    ["by √dₖ; dₖ = 4", ["by ", { name: "√d", low: "k" }, "; ", { name: "d", low: "k" }, " = 4"]],
    ["‖w·v·W_O‖", ["‖w·v·", { name: "W", low: "O" }, "‖"]],
    ["e^(−1.5 − (−3)) = 4", [{ name: "e", high: "−1.5 − (−3)" }, " = 4"]],
    ["e^(−∞) = 0, e^0 = 1.", [{ name: "e", high: "−∞" }, " = 0, ", { name: "e", high: "0" }, " = 1."]],
    ["e^1.25.", [{ name: "e", high: "1.25" }, "."]],
    ["score_gradient, the_k, d_key", ["score_gradient, the_k, d_key"]],
    ["", []],
  ])("%s", (text, pieces) => expect(typeset(text)).toEqual(pieces));

  it("has signs for a list to choose from", () => {
    expect(flat("two keys, d_k = 2; ‖w·v·W_O‖")).toBe("two keys, dₖ = 2; ‖w·v·Wₒ‖");
  });
});
