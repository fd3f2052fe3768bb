/** How numbers are written for people, as limelight.writing.numbers does: a real minus sign, even columns. */

const minus = (text: string): string => text.replace("-", "−");

/** Whole ones short, others to six digits. */
export function number(value: number | null): string {
  if (value === null || Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return minus(String(value === 0 ? 0 : value));
  if (size >= 1e6 || size < 1e-4) return minus(scientific(value));
  return minus(value.toFixed(6));
}

/** A fixed number of digits after the point. */
export function fixed(value: number | null, digits = 2): string {
  if (value === null || !Number.isFinite(value)) return number(value);
  const text = value.toFixed(digits);
  return minus(Number(text) === 0 ? text.replace("-", "") : text);
}

/** As many digits as tell it apart from its neighbours, and no noughts at the end: 0.25, 0.00213, 1234. */
export function significant(value: number | null, digits = 3): string {
  if (value === null || !Number.isFinite(value)) return number(value);
  const whole = Math.floor(Math.log10(Math.abs(value) || 1)) + 1;
  return number(Number(value.toPrecision(Math.max(digits, Math.min(whole, 21))))).replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "");
}

/** A number after an operator: a negative one in brackets. */
export function operand(value: number | null, write: (x: number | null) => string = number): string {
  const text = write(value);
  return text.startsWith("−") ? `(${text})` : text;
}

export function percent(value: number, digits = 0): string {
  return `${fixed(value * 100, digits)}\u00a0%`; // the sign stays with its number
}

export function vector(values: readonly (number | null)[], write: (x: number | null) => string = number): string {
  return `[${values.map(write).join(", ")}]`;
}

/** Two digits for the exponent, as Python writes it. */
function scientific(value: number): string {
  return value.toExponential(6).replace(/e([+-])(\d)$/, "e$10$2");
}

/** What a person types as a number, with a real minus sign or a decimal comma: ∞ where float64 cannot hold it, null where it is none. */
export function typedNumber(text: string): number | null {
  const plain = text.trim().replace(/[−–]/g, "-").replace(/^([^.,]*),([^.,]*)$/, "$1.$2");
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) ? Number(plain) : null;
}

/** The same, null also where float64 cannot hold it. */
export function parseNumber(text: string): number | null {
  const value = typedNumber(text);
  return value !== null && Number.isFinite(value) ? value : null;
}

/** What went wrong, in words. */
export const told = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** "1 layer", "2 layers". */
export const count = (n: number, word: string, many = `${word}s`): string => `${n.toLocaleString("en")} ${n === 1 ? word : many}`;

/** A text from outside, for a line of prose: nothing in it may turn or hide what stands around it. */
export const clean = (text: string): string =>
  text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");

/** A token within a sentence: its blanks matter only where there is nothing else. */
export function word(text: string): string {
  const plain = text.replace(/^[▁Ġ]/, "").trim();
  return plain || (text && token(text));
}

/** A token as a person sees it: the space before a word as a dot, line ends as arrows. */
export function token(text: string): string {
  return (
    text
      .replace(/^[ ▁Ġ]/, "·")
      .replace(/\n/g, "⏎")
      .replace(/\t/g, "⇥")
      // Control characters show themselves; those that turn the writing round must not do so here.
      .replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
      .replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "⇄") || "∅"
  );
}

/** With a capital letter, as a sentence begins. */
export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
