/** What stays: the takeaways of every part, and the words of the last one. */
import { t } from "$lib/language.svelte";

export const TAKEAWAYS: Readonly<Record<string, readonly string[]>> = {
  input: ["A word enters as a learned row of numbers.", "Attention itself is blind to order: the place has to be added, or turned in."],
  step: ["Compare, scale, normalise, mix: four moves from rows to rows.", "Queries meet keys; values are only mixed, after the weights are done."],
  map: ["A row is a word that looks, a column one that is looked at; each row sums to 1.", "A pattern of weights does not say what a head is for."],
  lab: ["Raw scores spread by √dₖ; dividing by it takes that growth out.", "A saturated row hardly answers when a score moves."],
  example: ["A score is a projection times a length: it asks how far a key points the query’s way.", "The output is a blend, and never leaves the values it is blended from."],
  scaling: ["Scaling never changes which key wins, only by how much.", "What it does to training depends on how a model starts and learns."],
  softmax: ["Softmax shares by differences of scores; it does not pick the maximum.", "Every key in view gets something, and every nudge moves the shares."],
  future: ["The mask acts on scores, before the softmax, with −∞.", "So earlier rows never change as a text grows, and keys and values can be kept."],
  apply: ["You can do it by hand: that is all there is inside.", "The largest weight and the largest contribution need not be the same key."],
  heads: ["Each head asks its own question; W_O joins the answers.", "What was read is added to the word; layers do it again with richer rows."],
  next: ["A guess grows through the layers: embedding, attention, feed-forward, again and again.", "Attention moves things between tokens; feed-forwards work on each alone."],
  not: ["A weight is not an explanation, and a head has not one meaning.", "Whether a head matters is measured: switch it off."],
};

export const TEXTS = {
  takeaways: "What stays",
  page: "All of it on one page",
  order: {
    title: "The pipeline, from memory",
    intro: "Choose the steps in their order, from the sentence to the word that has read.",
    steps: [
      { id: "embed", name: "Look each word up, add its place" },
      { id: "project", name: "Multiply by W_Q, W_K and W_V" },
      { id: "compare", name: "Dot products of queries and keys" },
      { id: "scale", name: "Divide by √dₖ" },
      { id: "mask", name: "Set hidden scores to −∞" },
      { id: "softmax", name: "Softmax of each row" },
      { id: "mix", name: "Mix the values by the weights" },
      { id: "join", name: "Lay the heads side by side, multiply by W_O" },
      { id: "add", name: "Add it to the word" },
    ],
    yours: "Your order",
    left: "Still to place",
    again: "Start over",
    undo: "Take the last back",
    right: "That is the whole way. From memory.",
    empty: "Choose what comes first.",
    going: (count: number, all: number): string => t`${count} of ${all}, right so far.`,
    wrong: {
      embed: "Before anything can be multiplied, the words must be rows of numbers.",
      project: "Queries and keys have to be made before they can be compared: first the three projections.",
      compare: "There are no scores to work on yet: first queries meet keys.",
      scale: "Scale first: the mask and the softmax take the scores as they are after the division.",
      mask: "The mask comes before the softmax. Crossing out shares afterwards would leave a row that no longer sums to 1.",
      softmax: "Values are mixed by weights, and there are none before the softmax.",
      mix: "Each head must have its mixture before heads are joined.",
      join: "The heads’ short rows do not fit the word yet: first W_O brings them to its size.",
      add: "",
    },
  },
  roles: {
    title: "Who seeks, who advertises, who contributes?",
    questions: [
      { id: "query", text: "What a word seeks" },
      { id: "key", text: "What a word advertises, to be found by" },
      { id: "value", text: "What a word contributes when it is found" },
    ],
    names: { query: "Query", key: "Key", value: "Value" },
    choose: "choose…",
    right: "Right: queries seek, keys advertise, values contribute.",
    wrong: {
      query: "The seeking side is the query: it is held against every key.",
      key: "What is advertised is the key: only it is compared with queries.",
      value: "What is contributed is the value: no score ever sees it.",
    },
    proof: "Keys and values are not the same. Move one at a time:",
    key: "key 1, second number",
    value: "value 1, second number",
    weight: "weight of key 1",
    output: "output",
    still: "Move the key, then the value.",
    keyMoved: "The key moved: the weight changed, and the output with it.",
    valueMoved: "The value moved: the output changed, and no weight did. No score ever sees a value.",
  },
  lives: {
    title: "Where it lives",
    intro: "The same four moves run in all of these; what differs is what is a token and who may look at whom. Each opens on what one model of its kind really did.",
    kinds: [
      { id: "gpt", name: "GPT", words: "Writes: every token looks back at what is written. The one inside here reads letters.", seen: "a model of Shakespeare’s letters" },
      { id: "bert", name: "BERT", words: "Understands: every token sees the whole sentence, before and after.", seen: "a sentence, every word in view of every other" },
      { id: "code", name: "Code assistants", words: "Continue a program: brackets look for the one that opened them.", seen: "a model of Python" },
      { id: "llama", name: "Llama", words: "Writes, with queries that share keys: one of its family, SmolLM2, is behind the real head of these lessons.", seen: "the curious cat, 270 heads" },
      { id: "vit", name: "Vision transformers", words: "See: tokens are patches of a picture, and each looks at all.", seen: "a photograph, patch by patch" },
    ],
  },
  on: {
    title: "Now read a real model",
    words: "You know every number now. In Explore you type a sentence, see every head of a model, switch heads off and watch the next word change.",
    go: "Go to Explore",
  },
} as const;

export type StepId = (typeof TEXTS.order.steps)[number]["id"];
export type Role = keyof typeof TEXTS.roles.names;
