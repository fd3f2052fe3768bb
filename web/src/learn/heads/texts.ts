/** The words of the part about heads, the way back, and layers. */
import { t } from "$lib/language.svelte";

export const TEXTS = {
  sideTitle: "Several at once",
  side: "One table of weights would make a word choose one thing to look for. So every layer has several heads, each with W_Q, W_K and W_V of its own: the same sentence, asked several questions at once. These are all heads of one layer of a real model. Move through its layers.",
  layer: (n: number): string => t`Layer ${n}`,
  layerText: (layer: number, of: number): string => t`layer ${layer} of 0 to ${of}`,
  word: "Choose a word that looks",
  head: (n: number): string => t`Head ${n}`,
  told: (word: string, count: number, keys: number, layer: number): string =>
    keys === 1
      ? t`In layer ${layer}, the ${count} heads of “${word}” look mostly at one word.`
      : t`In layer ${layer}, the ${count} heads of “${word}” look mostly at ${keys} different words.`,
  wait: "Fetching the heads…",
  backTitle: "Back to one row, and added to the word",
  back: "Each head hands over a short row. They are laid side by side, and one more learned matrix, W_O, mixes them into a row as long as the word’s own. That row is added to the word: it stays what it was, and now carries what it read. The next layer does the same with these rows, so a word can read what other words have read.",
  who: "Word",
  on: (name: string): string => t`Head “${name}”`,
  heads: ["traits", "deeds"],
  replace: "Replace the word instead of adding",
  name: "heads",
  sideBySide: "heads side by side",
  matrix: "output matrix",
  added: "what is added",
  own: "the word before",
  result: "the word after",
  kept: (word: string, feature: string): string => t`“${word}” is still a ${feature}, and carries what it read as well.`,
  lost: (word: string, feature: string): string =>
    t`What made “${word}” a ${feature} is gone or changed: the row holds only what was read. A deep model that did this would forget its own words.`,
  nothing: "Both heads are off: nothing is added, and the word passes through untouched.",
} as const;
