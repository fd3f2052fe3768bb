/** The words of "why softmax". */
import { t } from "$lib/language.svelte";

export const TEXTS = {
  scores: "Scores",
  score: (n: number): string => t`score ${n + 1}`,
  nudge: "Nudge the second score",
  ways: {
    softmax: { title: "Softmax", formula: "eˢ ÷ Σ eˢ", good: "Always positive, always sums to 1, and a small nudge moves the shares a little." },
    plain: {
      title: "Plain normalising", formula: "s ÷ Σ s",
      good: "Sums to 1, as long as all scores are positive. But 1, 2, 3 and 101, 102, 103 give other shares, though the keys differ as much.",
      negative: (least: string): string =>
        t`Scores of both signs give a negative share, here ${least}, and the others more than 100 % together: a word cannot give less than none of its attention.`,
      none: "The scores sum to 0: there is nothing to divide by.",
    },
    argmax: {
      title: "Argmax", formula: "1 for the largest",
      good: "One value is taken whole and all others are lost. A nudge changes nothing at all, until the winner flips: there is no slope along which a model could learn.",
    },
  },
  shift: "Add 10 to every score",
  told: "Softmax does not pick the maximum: it shares by how far apart scores are, and only their differences count. Adding the same number to all of them changes nothing.",
} as const;
