/**
 * An answer to an exercise, judged without the library: the same order of questions as its check.py, over
 * what marking.py has put beside the exercise. golden/check.json holds the two to the same verdicts.
 */
import type { Exercise, Feedback } from "$lib/api";
import { number, parseNumber } from "$lib/format";
import type { MistakeText, Step, StepMarking } from "$lib/schema";

const CLOSE = 0.005 + 1e-9; // two digits after the point
const HIDDEN = new Set(["hidden", "masked", "mask", "-inf", "−inf", "-∞", "−∞", "-", "−", "x", "·"]);
const SWAPPED = "swapped";

export function check(
  exercise: Exercise, step: Step, marking: StepMarking, answer: readonly string[], mistakes: readonly MistakeText[],
): Feedback {
  const { exact, slack, choices } = marking;
  const said = (verdict: Feedback["verdict"], kind: string, says: string, instead = "", numbers: boolean[] = []): Feedback => ({
    step, verdict, kind, says, instead, numbers, exact: verdict === "right" ? exact : [], right: verdict === "right",
  });
  if (choices.length) {
    const { verdict, kind, says, instead } = choices[Number(answer[0])] as unknown as Feedback;
    return said(verdict, kind, says, instead, [verdict === "right"]);
  }
  const seen = step === "output" ? exact.map(() => true) : exercise.allowed;
  const typed = answer.map((text) => (HIDDEN.has(text.trim().toLowerCase()) ? null : parseNumber(text.trim().replace(/%$/, "")) ?? NaN));
  const unread = typed.findIndex((x) => Number.isNaN(x));
  if (unread >= 0) return said("unreadable", "", `'${answer[unread]}' is not a number.`, form(step, exact.length));
  const gone = typed.findIndex((x, j) => x === null && seen[j]);
  if (gone >= 0) {
    const what = step === "output" ? "Number" : "Key";
    const instead = step === "output" ? "None is hidden." : "Only keys after the query are hidden.";
    return said("wrong", "hid-too-much", `${what} ${gone} is not hidden: it needs a number.`, instead, typed.map((x) => x !== null));
  }
  // A hidden key may be left open; it stands for what is right there.
  let numbers = typed.map((x, j) => x ?? exact[j]!);
  const sum = numbers.reduce((a, b) => a + b, 0);
  const percent = step === "weights" && Math.abs(sum - 100) < 3 && Math.max(...numbers) > 1.5;
  if (percent) numbers = numbers.map((x) => x / 100);
  const marks = numbers.map((x, j) => Math.abs(x - exact[j]!) <= CLOSE);
  if (marks.every(Boolean)) {
    if (percent) return said("right", "percent", "Right, in per cent; weights are usually written as parts of 1.", "", marks);
    const same = numbers.every((x, j) => x === exact[j]);
    return said("right", "", marking.right[same || step === "raw" ? 0 : 1]!, "", marks);
  }
  const paper = marking.paper.find(({ numbers: rough }) =>
    numbers.every((x, j) => Math.min(Math.abs(x - rough[j]!), Math.abs(x - exact[j]!)) <= CLOSE));
  if (paper) return said("right", "by-hand", paper.says, "", marks);

  const distance = (other: readonly number[]): number => Math.max(...numbers.map((x, j) => Math.abs(x - other[j]!) / slack[j]!));
  const off = distance(exact);
  let best = { far: Infinity, kind: "" };
  for (const { kind } of mistakes) {
    for (const wrong of kind === SWAPPED ? orders(exact, slack) : marking.wrong.filter(({ says }) => says === kind).map((each) => each.numbers)) {
      const far = distance(wrong);
      if (far < best.far) best = { far, kind };
    }
  }
  const mistake = mistakes.find(({ kind }) => kind === best.kind);
  if (mistake && best.far <= 1 && best.far < off) return said("mistake", mistake.kind, mistake.says, mistake.instead, marks);
  if (off <= 1 && step !== "raw") return rounding(said, numbers, exact, marks);
  const rule = exercise.steps.find((each) => each.step === step)?.hints[0] ?? "";
  return said("wrong", "", whatIsOff(step, numbers, exact, seen, marks), rule, marks);
}

type Said = (verdict: Feedback["verdict"], kind: string, says: string, instead: string, numbers: boolean[]) => Feedback;

function rounding(said: Said, numbers: readonly number[], exact: readonly number[], marks: boolean[]): Feedback {
  const j = marks.indexOf(false);
  const [x, right] = [numbers[j]!, exact[j]!];
  const cut = (Math.sign(right) * Math.floor(Math.abs(right) * 100)) / 100;
  if (Math.abs(x - cut) < 1e-9) {
    const nearest = (Math.sign(right) * Math.round(Math.abs(right) * 100)) / 100;
    const says = `Nearly: ${number(right)} was cut off; rounded to two digits it is ${nearest.toFixed(2).replace("-", "−")}.`;
    return said("rounding", "cut-off", says, "Round the last digit to the nearer one, not towards 0.", marks);
  }
  const says = `Nearly: ${number(x)} is off by ${Math.abs(x - right).toFixed(3)}.`;
  return said("rounding", "slip", says, "Keep three or more digits on the way and round to two at the end.", marks);
}

/** What can be seen without knowing how the answer came about. */
function whatIsOff(step: Step, numbers: readonly number[], exact: readonly number[], seen: readonly boolean[], marks: readonly boolean[]): string {
  if (step === "weights") {
    const total = numbers.reduce((a, b) => a + b, 0);
    const hidden = numbers.findIndex((x, j) => !seen[j] && x > CLOSE);
    if (numbers.some((x) => x < 0)) return "A weight is never negative: e to any power is positive.";
    if (hidden >= 0) return `Key ${hidden} is hidden: its weight is 0.`;
    if (Math.abs(total - 1) > 0.03) return `The weights sum to ${Number(total.toPrecision(4))}, and must sum to 1.`;
    const order = (row: readonly number[]): string => row.map((x, j) => ({ x, j })).filter(({ j }) => seen[j]).sort((a, b) => a.x - b.x).map(({ j }) => j).join();
    if (order(numbers) !== order(exact)) return "The weights are not in the order of the scores: the larger score gets more.";
  }
  if (!marks.some(Boolean)) return "None of these is right.";
  const wrong = marks.flatMap((mark, j) => (mark ? [] : [String(j)]));
  return `Look again at ${step === "output" ? "number" : "key"} ${wrong.join(" and ")}; the rest is right.`;
}

/** Every other order of the right numbers that is not a matter of rounding. */
function orders(exact: readonly number[], slack: readonly number[]): number[][] {
  const all = (rest: readonly number[]): number[][] =>
    rest.length ? rest.flatMap((x, j) => all([...rest.slice(0, j), ...rest.slice(j + 1)]).map((tail) => [x, ...tail])) : [[]];
  return all(exact).filter((row) => Math.max(...row.map((x, j) => Math.abs(x - exact[j]!) / slack[j]!)) >= 2);
}

function form(step: Step, count: number): string {
  const examples: Partial<Record<Step, string[]>> = {
    raw: ["5", "2", "-1", "0", "3"],
    scaled: ["3.54", "1.41", "-0.71", "0", "2.12"],
    weights: ["0.88", "0.11", "0.01", "0", "0"],
    output: ["8.83", "0.86", "1.20"],
  };
  return `Write it like this: ${(examples[step] ?? []).slice(0, count).join(", ")}`;
}
