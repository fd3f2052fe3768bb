/** What the model is given: it has read Shakespeare. */
export const TEXT = "JULIET:\nO Romeo, Romeo! wherefore art thou Rome";

/** Two texts in which one head of the small model looks at the same letter, found by trying. */
export interface Case {
  readonly text: string;
  /** The place of the letter that is looked at. */
  readonly key: number;
  readonly swap: string;
}

export const LAYER = 2;
export const HEAD = 0;
export const CASES: readonly Case[] = [
  { text: "And all the tet", key: 12, swap: "m" },
  { text: "She is my mothe", key: 12, swap: "m" },
];

export const swapped = ({ text, key, swap }: Case): string => text.slice(0, key) + swap + text.slice(key + 1);
