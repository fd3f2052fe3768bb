/** The parts of Learn in their order, and what each quiz question goes back to. */
export const PARTS = [
  { id: "input", title: "Where X comes from" },
  { id: "step", title: "Step through" },
  { id: "map", title: "Heat-map" },
  { id: "lab", title: "Saturation lab" },
  { id: "example", title: "Worked example" },
  { id: "scaling", title: "With and without scaling" },
  { id: "softmax", title: "Why softmax" },
  { id: "future", title: "The future hidden" },
  { id: "apply", title: "Apply now" },
  { id: "heads", title: "Heads and layers" },
  { id: "next", title: "The next word" },
  { id: "not", title: "What attention is not" },
  { id: "stays", title: "What stays" },
] as const;

export type PartId = (typeof PARTS)[number]["id"];

/** What else an address may name, and the part that it stands in. */
export const INSIDE: Readonly<Record<string, PartId>> = { training: "scaling", remedies: "scaling" };

/** Where what a question asks is shown. */
export const REVISIT: Readonly<Record<string, PartId>> = {
  mixture: "example",
  "softmax-of-what": "step",
  ranking: "scaling",
  "why-the-root": "lab",
  "score-table": "step",
  "key-and-value": "stays",
  "small-weight": "not",
  "small-gradient": "lab",
  "hide-with": "future",
  shape: "heads",
  "unit-vectors": "lab",
  shift: "softmax",
  columns: "map",
};
