import { describe, expect, it } from "vitest";
import { clean, count, fixed, number, operand, parseNumber, percent, significant, token, typedNumber, vector } from "./format";

describe("numbers as people read them", () => {
  it.each([
    [5, "5"], [-1, "−1"], [3.5355339, "3.535534"], [-0.70710678, "−0.707107"], [0, "0"], [-0, "0"],
    [1.5e-7, "1.500000e−07"], [12345678, "1.234568e+07"], [Infinity, "∞"], [-Infinity, "−∞"], [NaN, "NaN"],
  ])("%d is %s", (value, text) => expect(number(value)).toBe(text));

  it("fixed digits never show a negative nought", () => {
    expect(fixed(-0.001)).toBe("0.00");
    expect(fixed(-0.707)).toBe("−0.71");
  });

  it.each([
    [0.25, "0.25"], [0.00213, "0.00213"], [0.0021349, "0.00213"], [1234.5, "1235"], [-12.345, "−12.3"], [100, "100"],
    [0, "0"], [1, "1"], [1.5e-7, "1.5e−07"], [2e-9, "2e−09"], [1e-9, "1e−09"], [3e8, "3e+08"],
  ])("%d in short is %s", (value, text) => expect(significant(value)).toBe(text));

  it("puts a negative operand in brackets", () => {
    expect(operand(-2)).toBe("(−2)");
    expect(operand(2)).toBe("2");
  });

  it("writes shares and vectors", () => {
    expect(percent(0.324, 1)).toBe("32.4\u00a0%");
    expect(vector([2, -1])).toBe("[2, −1]");
  });
});

describe("numbers as people type them", () => {
  it.each([["2", 2], ["−0,5", -0.5], [" 1.25 ", 1.25], ["-.5", -0.5], ["1e3", 1000]])("%s", (text, value) =>
    expect(parseNumber(text)).toBe(value),
  );
  it.each(["", "two", "1,2,3", "1.2.3", "1e999", "--1"])("%s is no number", (text) =>
    expect(parseNumber(text)).toBeNull(),
  );
  it("tells what is too large from what is no number", () => {
    expect([typedNumber("−1e999"), typedNumber("two")]).toEqual([-Infinity, null]);
  });
});

it("counts in words", () => {
  expect([count(1, "query", "queries"), count(1200, "query", "queries"), count(2, "key")]).toEqual(["1 query", "1,200 queries", "2 keys"]);
});

it("lets no text turn the page round", () => {
  expect(clean("a\u202eb\u0000c\nd")).toBe("a\ufffdb\ufffdc\nd");
});

it("shows the blanks of a token", () => {
  expect(token(" cat")).toBe("·cat");
  expect(token("\n")).toBe("⏎");
});
