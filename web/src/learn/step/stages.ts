/** The seven stages of the step-through: their names, the term each lights, and a few words. */
import type { Term } from "$views/FormulaMathML.svelte";

export interface Stage {
  readonly id: Term;
  readonly name: string;
  readonly title: string;
  readonly words: string;
}

export const STAGES: readonly Stage[] = [
  {
    id: "input",
    name: "X",
    title: "The sentence as numbers",
    words:
      "One row for each word. Here each word has four features that a person can read: is it a trait, a thing, a deed, or glue? Several hundred common words have them from a small dictionary, set by hand. A real model has hundreds of features, and nobody named them.",
  },
  {
    id: "project",
    name: "Q, K, V",
    title: "Three views of every word",
    words:
      "Each row is multiplied by three matrices. Q says what the word seeks, K what it offers to be found by, V what it hands over when found. A model learns these matrices; these were set by hand, so that things seek traits and deeds seek things.",
  },
  {
    id: "compare",
    name: "Scores",
    title: "Compare every query with every key",
    words:
      "A score is a dot product: entry times entry, added up. Large where a query seeks what a key offers, near zero where they have nothing to do with each other, negative where they disagree.",
  },
  {
    id: "scale",
    name: "Scaled",
    title: "Divide by √dₖ",
    words:
      "The more entries a query and a key have, the more products are added, and the further scores spread: by √dₖ, for entries of variance 1. Dividing by √dₖ takes that growth out. It sets no bound: a score may still be as large as the vectors make it.",
  },
  {
    id: "mask",
    name: "Masked",
    title: "Hide what may not be seen",
    words:
      "With the causal mask on, a word sees itself and what came before. A hidden score becomes −∞. With the mask off, every word sees every word, as in BERT.",
  },
  {
    id: "normalise",
    name: "Weights",
    title: "Turn each row into shares",
    words:
      "The softmax raises e to every score and divides by the row’s sum. Every word in view gets a positive weight, a hidden one gets 0, and each row sums to 1: a word has one unit of attention to give.",
  },
  {
    id: "mix",
    name: "Output",
    title: "Mix the values by the weights",
    words:
      "Each output row is a weighted sum of all value rows. Nothing is picked; everything is blended. A word now carries something of the words it looked at.",
  },
];
