/** The words of the part about where X comes from. */
import { t } from "$lib/language.svelte";

export const TEXTS = {
  position: "Add the position",
  swap: "Swap the first and the last word",
  sentence: "The sentence",
  embedding: "What the word is",
  embeddingLabel: "embeddings",
  place: "Where it stands",
  unplaced: "Where it stands (not added)",
  placeLabel: "positions",
  places: ["1st", "2nd", "3rd"],
  x: "What goes in",
  xLabel: "rows of X",
  steps: [
    "A word is looked up in a table: one learned row of numbers for each piece of text that the model knows. The row is the same wherever the word stands.",
    "So the place has to be added. Here it is the pattern of waves that the 2017 paper used: each place gets a row of its own. Many models today turn queries and keys by their place instead; the aim is the same.",
  ],
  here: (word: string): string => t`What attention hands “${word}”, in this order`,
  there: (word: string): string => t`What attention hands “${word}”, the other way round`,
  same: (word: string): string =>
    t`The same numbers to the last digit: without positions, attention sees a bag of words. Who chased whom is lost on “${word}”.`,
  different: (word: string): string => t`Different numbers: now “${word}” can tell who comes before it and who after.`,
} as const;
