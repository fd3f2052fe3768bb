/**
 * How far someone has come, kept in this browser and nowhere else. Which exercise and which question are
 * open stands in the address too, so that a link opens them.
 */
import type { Solution } from "$lib/api";
import { register, type Kept as InAddress } from "../state.svelte";

const KEY = "limelight.progress";

/** An exercise in the middle: what has been found and typed so far. */
export interface Board {
  readonly level: number;
  readonly seed: number;
  readonly done: readonly { readonly exact: readonly number[] }[];
  readonly typed: readonly string[];
  readonly shown: Solution | null;
  readonly help: { readonly hints: number; readonly shown: number };
}

interface Kept {
  /** Exercises solved at each level, and how many of those without help. */
  solved: Record<string, number>;
  unaided: Record<string, number>;
  /** The exercise to continue with. */
  level: number;
  seed: number;
  /** How many keys it has. */
  keys: number;
  /** Quiz questions by name: whether the first answer was right. */
  quiz: Record<string, boolean>;
  board: Board | null;
}

const FRESH: Kept = { solved: {}, unaided: {}, level: 1, seed: 1, keys: 2, quiz: {}, board: null };
const MOST = 1e9; // the largest seed that an address may name
const TABS = ["exercises", "quiz"] as const;

function stored(): Kept {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "null");
    return found && typeof found === "object" ? { ...FRESH, ...(found as Partial<Kept>) } : { ...FRESH };
  } catch {
    return { ...FRESH }; // nothing stored, nothing readable, or storage forbidden
  }
}

class Progress implements InAddress {
  readonly name = "apply";
  now: Kept = $state(stored());
  tab: (typeof TABS)[number] = $state("exercises");
  /** The quiz's question, from 0, and the option that was chosen; null: none yet. */
  question: number | null = $state(null);
  chosen: number | null = $state(null);
  total = $derived(Object.values(this.now.solved).reduce((a, b) => a + b, 0));
  alone = $derived(Object.values(this.now.unaided).reduce((a, b) => a + b, 0));

  solve(level: number, unaided: boolean): void {
    this.now.solved[level] = (this.now.solved[level] ?? 0) + 1;
    if (unaided) this.now.unaided[level] = (this.now.unaided[level] ?? 0) + 1;
    this.#keep();
  }

  open(level: number, seed: number): void {
    this.now.level = level;
    this.now.seed = seed;
    this.#keep();
  }

  keep(board: Board): void {
    this.now.board = board;
    this.#keep();
  }

  size(keys: number): void {
    if (keys === this.now.keys) return;
    this.now.keys = keys;
    this.#keep();
  }

  answer(question: string, right: boolean): void {
    if (question in this.now.quiz) return; // the first answer counts
    this.now.quiz[question] = right;
    this.#keep();
  }

  forgetQuiz(): void {
    this.now.quiz = {};
    this.#keep();
  }

  forget(): void {
    this.now = structuredClone(FRESH);
    this.#keep();
  }

  read(given: Readonly<Record<string, string>>): void {
    const count = (key: string, least: number): number | null => {
      const x = Number(given[key] ?? NaN);
      return Number.isInteger(x) && x >= least && x <= MOST ? x : null;
    };
    this.tab = TABS.find((tab) => tab === given["tab"]) ?? "exercises";
    this.open(count("level", 0) ?? FRESH.level, count("seed", 0) ?? FRESH.seed);
    const question = count("question", 1);
    this.question = question === null ? null : question - 1;
    this.chosen = count("answer", 0);
  }

  write(all = false): Record<string, string> {
    const { level, seed } = this.now;
    return {
      ...(all || this.tab !== "exercises" ? { tab: this.tab } : {}),
      ...(all || level !== FRESH.level ? { level: String(level) } : {}),
      ...(all || seed !== FRESH.seed ? { seed: String(seed) } : {}),
      ...(this.question === null ? {} : { question: String(this.question + 1) }),
      ...(this.chosen === null ? {} : { answer: String(this.chosen) }),
    };
  }

  /** Back to the first exercise and the first open question; what was solved stays solved. */
  reset(): void {
    this.now.board = null;
    this.read({});
  }

  #keep(): void {
    try {
      localStorage.setItem(KEY, JSON.stringify(this.now));
    } catch {
      // then it lasts as long as the page
    }
  }
}

export const progress = register(new Progress());
