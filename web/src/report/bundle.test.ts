import { describe, expect, it } from "vitest";
import { HIDDEN, HIDDEN_16, LIT_16, NAN_16 } from "$lib/schema";
import { decoded, half, unpack } from "./bundle";

describe("packed numbers", () => {
  it("reads float16 by its bits", () => {
    expect([0x3c00, 0xc000, 0x3555, 0x0001, 0x7bff, 0x8000].map(half)).toEqual([
      1, -2, 0.333251953125, 2 ** -24, 65504, -0,
    ]);
    expect(half(0x7c00)).toBe(Infinity);
    expect(half(0xfc00)).toBe(-Infinity);
    expect(half(0x7e00)).toBeNaN();
  });

  it("tells what is hidden from what is not a number", () => {
    expect([0, LIT_16, HIDDEN_16].map(decoded)).toEqual([0, 1, HIDDEN]);
    expect(decoded(NAN_16)).toBeNaN();
  });

  it("unpacks what Python packed", async () => {
    // limelight.views.bundle.pack(numpy.array([[0, 1, 65535]], "<u2"))
    const packed = { dtype: "u2", shape: [1, 3], data: "eJxjYGBk+P8fAAMHAgA=" } as const;
    expect([...Array.from(await unpack(packed))]).toEqual([0, 1, 65535]);
  });
});
