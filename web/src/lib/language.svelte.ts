/**
 * The language of the lessons. The English text is the message: it stands where it is shown, and a
 * translation is one file, src/limelight/texts/de.json, from messages to texts.
 *
 *     t`The query of ${from} times the key of ${to}`   the message is "The query of {1} times the key of {2}"
 *     t(stage.title)                                   a text from a table, or a sentence from Python
 *     <Say text={"Shares, <b>not</b> choices."} />       with markup: see views/Say.svelte
 *
 * A sentence that Python has made is found by its form: "Key {1} is hidden." reads "Key 2 is hidden.", and
 * what stands in a gap is translated too where it is a message itself. What nobody has translated stays
 * English. limelight.texts does the same for the command line.
 */
import { parse, router } from "./router.svelte";
import { LANGUAGES } from "./schema";

export type Language = keyof typeof LANGUAGES;

export type Texts = Readonly<Record<string, string>>;

const KEY = "limelight.language";
const GAP = /\{(\d+)\}/g;
const SPECIAL = /[.*+?^${}()|[\]\\]/g;

const known = (text: string | null | undefined): Language | null => (text && Object.hasOwn(LANGUAGES, text) ? (text as Language) : null);

function stored(): Language | null {
  try {
    return known(localStorage.getItem(KEY));
  } catch {
    return null; // storage may be forbidden, as in a sandboxed page
  }
}

/** A translation: by message, and by the form of a sentence. */
export class Catalogue {
  readonly #forms: readonly { readonly form: RegExp; readonly order: readonly number[]; readonly to: string }[];

  constructor(readonly texts: Texts) {
    this.#forms = Object.entries(texts)
      .filter(([message]) => /\{\d+\}/.test(message))
      // The form that leaves least open goes first.
      .sort(([a], [b]) => b.replace(GAP, "").length - a.replace(GAP, "").length)
      .map(([message, to]) => ({
        form: new RegExp(`^${message.split(GAP).map((part, n) => (n % 2 ? "(.+?)" : part.replace(SPECIAL, "\\$&"))).join("")}$`, "s"),
        order: [...message.matchAll(GAP)].map(([, n]) => Number(n)),
        to,
      }));
  }

  read(sentence: string): string {
    const exact = this.texts[sentence];
    if (exact !== undefined) return exact;
    for (const { form, order, to } of this.#forms) {
      const found = form.exec(sentence);
      if (found) return fill(to, (n) => this.read(found[order.indexOf(n) + 1]!));
    }
    return sentence;
  }
}

export const fill = (text: string, gap: (n: number) => string): string => text.replace(GAP, (_, n: string) => gap(Number(n)));

class LanguageState {
  /** Under which the address holds it: see learn/state.svelte.ts. */
  readonly name = "page";
  choice: Language = $state("en");
  /** The one that was chosen and did not come. */
  missing: Language | null = $state(null);
  /** Where nobody has chosen. */
  #start: Language = "en";
  #catalogues: Partial<Record<Language, Catalogue>> = $state.raw({});
  /** The one in effect: other areas speak English. Derived, so that texts stay as the address changes. */
  now: Language = $derived(router.route.area === "learn" && this.#catalogues[this.choice] ? this.choice : "en");
  catalogue: Catalogue | null = $derived(this.#catalogues[this.now] ?? null);
  #open: ((language: Language) => Promise<Texts>) | null = null;

  /** The lessons bring the translations, and the choice kept in the browser counts from then on. */
  bring(open: (language: Language) => Promise<Texts>): void {
    this.#open = open;
    this.#take(stored() ?? this.#start);
  }

  /** A file may speak another language than English from the start: that which its address names. */
  begin(address: string): void {
    this.#start = known(parse(address).query["page.language"]) ?? "en";
    if (!("page.language" in router.route.query)) this.#take(stored() ?? this.#start);
  }

  choose(language: Language): void {
    this.#take(language);
    try {
      localStorage.setItem(KEY, language);
    } catch {
      // the choice then lasts as long as the page
    }
  }

  read(given: Readonly<Record<string, string>>): void {
    this.#take(known(given["language"]) ?? this.#start);
  }

  write(): Record<string, string> {
    return this.choice === "en" && this.#start === "en" ? {} : { language: this.choice };
  }

  reset(): void {
    this.#take(this.#start);
  }

  #take(language: Language): void {
    this.choice = language;
    this.missing = null;
    if (language === "en" || this.#catalogues[language]) return;
    this.#open?.(language).then(
      (texts) => (this.#catalogues = { ...this.#catalogues, [language]: new Catalogue(texts) }),
      () => {
        if (this.choice === language) [this.choice, this.missing] = ["en", language];
      },
    );
  }
}

export const language = new LanguageState();

/** A message in the language of the page. */
export function t(message: string): string;
export function t(parts: TemplateStringsArray, ...values: (string | number)[]): string;
export function t(message: string | TemplateStringsArray, ...values: (string | number)[]): string {
  const { catalogue } = language;
  if (typeof message === "string") return catalogue?.read(message) ?? message;
  const form = message.reduce((text, part, n) => `${text}{${n}}${part}`);
  const text = catalogue?.texts[form] ?? form;
  return fill(text, (n) => String(values[n - 1]));
}

/**
 * A large number as the language groups its digits. The decimal sign of all pages is a point, so that numbers can
 * be typed and compared as they stand: where a language groups by points, a narrow space does it.
 */
export function grouped(value: number, options?: Intl.NumberFormatOptions): string {
  const parts = new Intl.NumberFormat(language.now, options).formatToParts(value);
  return parts.map(({ type, value: text }) => (type === "decimal" ? "." : type === "group" && text === "." ? "\u202f" : text)).join("");
}
