/** Where the captures that come along are opened: at a head worth seeing first, and why it is. */

export interface Start {
  readonly words: string;
  readonly query: Readonly<Record<string, string>>;
}

export const STARTS: Readonly<Record<string, Start>> = {
  llama: { words: "cat looks at curious", query: { head: "11.1", cell: "2.1" } },
  "llama-paragraph": { words: "curious comes again, and looks at what followed it before", query: { head: "5.5", cell: "34.2" } },
  bert: { words: "every word looks at the one before", query: { head: "0.2", cell: "3.2" } },
  gpt: { words: "letters look at the first letter of their word", query: { head: "2.0", cell: "81.79" } },
  code: { words: "inside brackets, a look at the one that opened them", query: { head: "4.2", cell: "124.121" } },
  vit: { words: "where the model looks while it reads a digit", query: { head: "3.3", look: "image", cell: "0.7" } },
};
