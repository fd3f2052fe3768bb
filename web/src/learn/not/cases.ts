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
  { text: "ROMEO:\nI love the", key: 14, swap: "s" },
  { text: "It is the east, and Juliet is the su", key: 34, swap: "t" },
];

export const swapped = ({ text, key, swap }: Case): string => text.slice(0, key) + swap + text.slice(key + 1);
