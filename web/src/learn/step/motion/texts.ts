/** What is said while numbers travel: one sentence for each stop. */
import { t } from "$lib/language.svelte";

export const TEXTS = {
  title: (word: string): string => t`The row of “${word}”, moving`,
  play: "Play",
  again: "Play again",
  pause: "Pause",
  scrub: "Move through the step",
  before: "Before",
  after: "After",
  project: {
    query: (word: string): string => t`The row of “${word}” in X is about to pass over the columns of W: that makes its query.`,
    key: (word: string): string => t`The row of “${word}” in X is about to pass over the columns of W: that makes its key.`,
    value: (word: string): string => t`The row of “${word}” in X is about to pass over the columns of W: that makes its value.`,
    stop: (word: string, role: string, sum: string): string => t`“${word}” over the column “${role}”: ${sum}.`,
  },
  compare: {
    start: (word: string): string => t`The query of “${word}”, stood up, is about to pass over the keys, the columns of Kᵀ.`,
    stop: (word: string, key: string, sum: string): string => t`“${word}” over “${key}”: ${sum}.`,
  },
  scale: {
    start: (word: string): string => t`The raw scores of “${word}”.`,
    stop: (root: string): string => t`Each is divided by √dₖ = ${root}: all shrink by the same factor, and their order stays.`,
  },
  mask: {
    start: (word: string): string => t`The scaled scores of “${word}”.`,
    none: "The mask is off: nothing is hidden, and every score stays. Switch it on above.",
    stop: (words: string): string => t`${words} comes later: the score falls to −∞, before any softmax.`,
    more: (words: string): string => t`${words} come later: their scores fall to −∞, before any softmax.`,
    last: "No word in view comes later: every score stays.",
  },
  normalise: {
    start: (word: string): string => t`The scores of “${word}”, as they enter the softmax.`,
    shifted: (top: string): string => t`The largest, ${top}, is taken off each: it is 0 now, and the others hang below.`,
    powers: (sum: string): string => t`e to each grows out of it: 1 for the largest, less for the others. Their sum is ${sum}.`,
    shares: "All are poured into one bar and divided by the sum: shares of one unit of attention.",
  },
  mix: {
    start: (word: string): string => t`The values, and how much of each “${word}” takes.`,
    stop: (share: string, word: string, sum: string): string => t`${share} of “${word}” flows in: ${sum} so far.`,
    end: (share: string, word: string, sum: string): string => t`${share} of “${word}” flows in: ${sum}, the output.`,
    hidden: (word: string): string => t`“${word}” is hidden: nothing flows.`,
  },
  sum: "sum",
} as const;
