import { describe, expect, it } from "vitest";
import golden from "../../golden/check.json";
import type { Exercise, Feedback } from "$lib/api";
import type { MistakeText, Step, StepMarking } from "$lib/schema";
import { check } from "./check";

interface Judged {
  readonly step: Step;
  readonly answer: readonly string[];
  readonly says: Feedback;
}

const mistakes = golden.mistakes as MistakeText[];

describe.each(golden.exercises)("exercise $info.level, $info.seed", ({ info, marking, judged }) => {
  const held = marking as unknown as Record<string, StepMarking>;
  it.each(judged as unknown as Judged[])("$step $answer", ({ step, answer, says }) => {
    const found = check(info as unknown as Exercise, step, held[step]!, answer, mistakes);
    // Of an answer without a known cause the library looks for where it went wrong; the page gives the rule.
    const { says: words, instead, kind, ...same } = says;
    expect(found).toMatchObject(same);
    if (says.verdict !== "wrong") expect([found.kind, found.says, found.instead]).toEqual([kind, words, instead]);
  });
});

it("knows every mistake that the library knows", () => {
  const told = new Set(golden.exercises.flatMap(({ judged }) => judged.map(({ says }) => says.kind)));
  for (const kind of ["not-scaled", "swapped", "one-hot", "unmasked", "masked-late", "percent", "by-hand", "cut-off", "hid-too-much"])
    expect(told).toContain(kind);
});
