/** The words of the arrows beside the worked example. */
import { t } from "$lib/language.svelte";

export const TEXTS = {
  title: "The same, as directions",
  intro:
    "Two numbers are an arrow. A score is large where a key points the way the query points: drop the key onto the query’s line, and multiply what lies on it by the query’s norm, which is how long its arrow is. Turn the query and watch the weights follow.",
  turn: "Direction of the query",
  turned: (degrees: string): string => t`${degrees} degrees`,
  plot: (angle: string): string => t`The query and three keys as arrows from one point; the query points at ${angle} degrees.`,
  values: (x: string, y: string): string => t`The three values as points, and the output at ${x}, ${y} among them.`,
  valuesTitle: "Where the output lands",
  inside: "The weights are positive and sum to 1, so the output never leaves the triangle of the values.",
  key: "key",
  projection: "on its line",
  times: (norm: string): string => t`× norm ${norm}`,
  score: "score",
  scaled: "÷ √2",
  weight: "weight",
  hint: "Drag the arrow’s tip, or use the arrow keys: left and right turn it, up and down make it longer and shorter.",
  table: "Scores from projections",
} as const;
