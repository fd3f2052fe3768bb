/** How far someone has come, kept in this browser and nowhere else. */
const KEY = "limelight.progress";

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
}

const FRESH: Kept = { solved: {}, unaided: {}, level: 1, seed: 1, keys: 2, quiz: {} };

function stored(): Kept {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "null");
    return found && typeof found === "object" ? { ...FRESH, ...(found as Partial<Kept>) } : { ...FRESH };
  } catch {
    return { ...FRESH }; // nothing stored, nothing readable, or storage forbidden
  }
}

class Progress {
  now: Kept = $state(stored());
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

  #keep(): void {
    try {
      localStorage.setItem(KEY, JSON.stringify(this.now));
    } catch {
      // then it lasts as long as the page
    }
  }
}

export const progress = new Progress();
