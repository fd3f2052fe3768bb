/** Three ways to make shares of scores: the one that is used, and two that one might try. */
import { softmax as whole } from "$lib/attention";

export type Way = "softmax" | "plain" | "argmax";

export const WAYS: Readonly<Record<Way, (scores: readonly number[]) => readonly number[]>> = {
  softmax: (scores) => whole(scores).weights,
  plain: (scores) => {
    const sum = scores.reduce((a, b) => a + b, 0);
    return scores.map((s) => s / sum);
  },
  argmax: (scores) => {
    const best = scores.indexOf(Math.max(...scores));
    return scores.map((_, n) => Number(n === best));
  },
};
