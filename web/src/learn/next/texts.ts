/** The words of "The next word". */
import { t } from "$lib/language.svelte";

export const TEXTS = {
  text: "Type, and see what comes next",
  model: "it has read Shakespeare, letter by letter: a token is a letter",
  examples: "Or try",
  wait: "The model reads…",
  next: "What comes next",
  way: "The way of the last letter",
  wayIntro: (token: string): string =>
    t`Follow “${token}”, the last letter, from the bottom of the model to the top. At every stop the model is asked early: what would you say now?`,
  stop: { embedding: "Embedding", attention: "Attention", "feed-forward": "Feed-forward" },
  layer: (n: number): string => t`Layer ${n}`,
  inLayer: (stop: string, n: number): string => t`${stop}, layer ${n}`,
  added: "adds",
  size: "length",
  guess: "guess so far",
  story: {
    embedding: "The letter and its place, as numbers. It knows nothing of the text yet, so it mostly guesses itself.",
    attention: "The heads read other letters, and what they read is added to this one.",
    "feed-forward": "A small network works on this letter alone, with what it has gathered. No other letter is looked at.",
    last: "The top: these are the model’s probabilities.",
  },
  replace: "Let what is read replace the letter, in every layer",
  kept: "Added, not replaced: the arrow keeps its own direction and is bent a little at every stop. So nothing that was known is lost, and each layer has only to say what is new.",
  replaced: "Replaced: after one layer the letter has forgotten what it was, and the guess is babble. That is why the output of attention is added to the token and does not take its place.",
  table: "The stops of the last letter",
} as const;
