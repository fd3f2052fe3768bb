/** What the studio would answer, from the data in the file; exercises are checked by check.ts. */
import { ApiError, NEEDS_STUDIO, type CheckRequest, type Exercise, type Solution, type Stand } from "$lib/api";
import { t } from "$lib/language.svelte";
import type { HeldExercise, LessonsData, OfStep } from "$lib/schema";
import { check } from "./check";

const COMMAND = "`limelight exercise`"; // draws any

export class Held implements Stand {
  constructor(readonly data: LessonsData) {}

  get(path: string): unknown {
    if (path.startsWith("/api/exercise?")) {
      const asked = new URLSearchParams(path.split("?")[1]);
      return this.#exercise(Number(asked.get("level")), Number(asked.get("seed"))).info;
    }
    const found = this.data.answers[path];
    if (found === undefined) throw new ApiError(0, NEEDS_STUDIO);
    return found;
  }

  post(path: string, body: unknown): unknown {
    if (path === "/api/exercise/check") {
      const { level, seed, step, answer } = body as CheckRequest;
      const { info, marking } = this.#exercise(level, seed);
      return check(info as Exercise, step, marking[step]!, answer, this.data.mistakes);
    }
    if (path === "/api/exercise/show") {
      const { level, seed, step } = body as OfStep;
      const { exact, working } = this.#exercise(level, seed).marking[step]!;
      return { step, exact, working } satisfies Solution;
    }
    throw new ApiError(0, NEEDS_STUDIO);
  }

  /** There are some of each level; after the last comes the first again. */
  #exercise(level: number, seed: number): HeldExercise {
    const own = this.data.exercises.filter(({ info }) => (info as Exercise).level === level);
    const found = own[(((seed - 1) % own.length) + own.length) % own.length];
    if (!found) throw new ApiError(0, t`This file has no exercise of level ${level}. Any other: ${COMMAND}.`);
    return found;
  }
}
