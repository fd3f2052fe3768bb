/** The words of "What attention is not". */
import { t } from "$lib/language.svelte";

export const TEXTS = {
  wait: "The model runs…",
  looks: {
    title: "A large weight is not a large effect",
    intro: "Every dot is a look of the last letter: a head and the letter it looks at. To the right: a larger weight. Up or down: what happens to the guess when that one look is hidden and the rest of the row shares its weight. Choose a dot.",
    plot: "Looks by weight and effect",
    weight: "weight",
    brought: "what arrives, ‖w·v·W_O‖",
    change: "log-probability without it",
    across: "weight →",
    up: "guess rises without it",
    down: "guess falls without it",
    dot: (layer: number, head: number, token: string, weight: string, change: string): string =>
      t`Layer ${layer}, head ${head} looks at “${token}”: weight ${weight}, change ${change}`,
    idle: "The largest weight with next to no effect",
    strong: "The look that matters most",
    told: (idle: string, idleChange: string, strong: string, strongChange: string): string =>
      t`A weight of ${idle} that changes the guess by ${idleChange}, and one of ${strong} that changes it by ${strongChange}. Weights say what was taken; they do not explain what came of it.`,
  },
  reasons: {
    title: "The same head, the same letter, another reason",
    intro: "One head looks hard at the same letter in two texts. Why? Put another letter in its place: if the look stays, the place was the reason; if it goes, the letter was.",
    swap: (letter: string): string => t`Put “${letter}” there`,
    back: "Put it back",
    head: (layer: number, head: number): string => t`Layer ${layer}, head ${head}`,
    weight: (from: string, to: string): string => t`weight from “${from}” to “${to}”`,
    stays: "The look stays: it goes to this place, whatever letter stands there.",
    goes: "The look goes: it was this very letter that was sought.",
    first: "The weight as the text stands. Now change the letter.",
    told: "In the first text it goes to where the word begins; in the second it seeks the t of “th”. One head, two reasons: a pattern of weights has no meaning of its own, and a head has not just one.",
  },
  sink: {
    title: "Most heads rest on the first word",
    intro: "In a large model many heads have nothing to say about most words. They put their weight where it does no harm: on the first token, whose value is small. It receives most attention, and means least.",
    count: (sinks: number, heads: number): string => t`${sinks} of ${heads} heads rest mostly on “The”`,
    value: "length of the values in one such head",
    first: "first word",
    others: "mean of the others",
    show: "Open it in Explore",
    told: "Most attended to is not most important: here it is where a head says nothing.",
  },
  missed: {
    title: "Heads that nobody misses, and one that breaks the sentence",
    intro: "Switch one head off and let the model answer again. Each square is a head, layers down; the stronger its colour, the more its absence costs the guess.",
    nobody: "One nobody misses",
    breaks: "One that breaks it",
    all: "All on",
    square: (layer: number, head: number, change: string): string => t`Layer ${layer}, head ${head}: ${change}`,
    guess: "What comes next",
    without: (layer: number, head: number): string => t`without layer ${layer}, head ${head}`,
    whole: "with every head on",
    from: (before: string): string => t`from ${before}`,
    told: (few: number, all: number): string =>
      t`${few} of the ${all} heads change the guess by less than a twentieth when they are off alone. Which head matters, no map of weights says: it is measured.`,
  },
} as const;
