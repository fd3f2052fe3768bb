/** Light, dark, or what the system says; kept in the browser. Canvas views redraw when it changes. */
import { flushSync } from "svelte";

export type Theme = "light" | "dark";
export type ThemeChoice = Theme | "auto";

const KEY = "limelight.theme";
const dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");

function stored(): ThemeChoice {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "auto";
  } catch {
    return "auto"; // storage may be forbidden, as in a sandboxed report
  }
}

class ThemeState {
  choice: ThemeChoice = $state(stored());
  #system: Theme = $state(dark?.matches ? "dark" : "light");
  /** Whether the page is being put on paper, which is light. */
  printing = $state(false);

  constructor() {
    dark?.addEventListener("change", (event) => {
      this.#system = event.matches ? "dark" : "light";
    });
    globalThis.addEventListener?.("beforeprint", () => this.#print(true));
    globalThis.addEventListener?.("afterprint", () => this.#print(false));
    this.#apply();
  }

  /** The one in effect. */
  get now(): Theme {
    if (this.printing) return "light";
    return this.choice === "auto" ? this.#system : this.choice;
  }

  choose(choice: ThemeChoice): void {
    this.choice = choice;
    this.#apply();
    try {
      if (choice === "auto") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, choice);
    } catch {
      // the choice then lasts as long as the page
    }
  }

  /** At once: the browser takes the page as it is when this returns. */
  #print(on: boolean): void {
    flushSync(() => {
      this.printing = on;
      this.#apply();
    });
  }

  #apply(): void {
    const root = globalThis.document?.documentElement;
    if (!root) return;
    const choice = this.printing ? "light" : this.choice;
    if (choice === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", choice);
  }
}

export const theme = new ThemeState();
