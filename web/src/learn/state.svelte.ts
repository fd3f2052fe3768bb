/**
 * What a reader has set in the lessons stands in the address: #/learn/lab?lab.d_k=128&step.stage=scale.
 * So a reload keeps it, a link carries it, and "Start over" is one rule for every part.
 *
 * A part declares its fields once, at the top of its component's module script, under the id that its
 * <Part> has, and then reads and writes them as plain state:
 *
 *     <script lang="ts" module>
 *       import { choice, flag, keep, whole } from "./state.svelte";
 *       const lab = keep("lab", { d_k: whole(64, 1, 1024), scaled: flag(true), keys: choice([2, 4, 8], 8) });
 *     </script>
 *     <button onclick={() => (lab.now.d_k *= 2)}>{lab.now.d_k}</button>
 *
 * That is all: <Part id="lab"> finds it by name and gives it "Start over" and "Copy link". Fields are
 * `whole`, `real`, `flag`, `choice`, `text` and `table` (numbers in rows, of any depth of editing:
 * `example.now.keys[0][1] = 3` is seen). Several modules may keep fields under one name. Where the fields
 * depend on each other (numbers that belong to the words of a sentence) hand `register` an object that
 * reads and writes them together, as toy.svelte.ts does.
 *
 * The rules: only what differs from its start is written, so the address of an untouched page is short. An
 * address that names a part sets the whole of it, what it leaves out or what makes no sense to its start; a
 * part that it does not name stays as it is, so that plain links between parts lose nothing.
 */
import { untrack } from "svelte";
import { language, type Texts } from "$lib/language.svelte";
import { href, router } from "$lib/router.svelte";

/** Something whose state the address holds, under a name. */
export interface Kept {
  readonly name: string;
  /** Take over what the address says; fields that it leaves out go to their start. */
  read(given: Readonly<Record<string, string>>): void;
  /** What differs from the start; with `all`, everything. */
  write(all?: boolean): Record<string, string>;
  reset(): void;
}

/** One value: where it starts, and how it stands in an address; null where a text makes no sense. */
export interface Field<T> {
  readonly start: T;
  read(text: string): T | null;
  write(value: T): string;
}

type Fields = Readonly<Record<string, Field<unknown>>>;
type Values<F extends Fields> = { -readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never };

export const real = (start: number, min: number, max: number): Field<number> => ({
  start,
  read: (text) => within(text, min, max),
  write: String,
});

export const whole = (start: number, min: number, max: number): Field<number> => ({
  start,
  read: (text) => (Number.isInteger(Number(text)) ? within(text, min, max) : null),
  write: String,
});

export const flag = (start: boolean): Field<boolean> => ({
  start,
  read: (text) => (text === "1" ? true : text === "0" ? false : null),
  write: (on) => (on ? "1" : "0"),
});

export const choice = <const T extends string | number>(options: readonly T[], start: NoInfer<T>): Field<T> => ({
  start,
  read: (text) => options.find((option) => String(option) === text) ?? null,
  write: String,
});

export const text = (start: string, longest: number): Field<string> => ({
  start,
  read: (text) => (text.length <= longest ? text : null),
  write: (value) => value,
});

/** Rows of numbers as "2,1;1,0". A reader may change how many there are, from `fewest` to `most`. */
export const table = (
  start: readonly (readonly number[])[], fewest = start.length, most = start.length,
): Field<number[][]> => ({
  start: start.map((row) => [...row]),
  read: (text) => {
    const rows = text.split(";").map((row) => row.split(",").map((x) => within(x, -LARGEST, LARGEST)));
    const right = rows.length >= fewest && rows.length <= most && rows.every((row) => row.length === start[0]!.length);
    return right && rows.every(full) ? rows : null;
  },
  write: (rows) => rows.map((row) => row.join(",")).join(";"),
});

const LARGEST = 1e6; // of a number that is typed: see NumberField
const full = (row: (number | null)[]): row is number[] => !row.includes(null);

function within(text: string, min: number, max: number): number | null {
  const x = Number(text);
  return text.trim() && x >= min && x <= max ? x : null;
}

class Fieldwise<F extends Fields> implements Kept {
  now: Values<F>;

  constructor(
    readonly name: string,
    readonly fields: F,
  ) {
    this.now = $state(this.#values(() => null));
  }

  #values(given: (key: string) => string | null): Values<F> {
    const pairs = Object.entries(this.fields).map(([key, field]) => {
      const said = given(key);
      return [key, (said === null ? null : field.read(said)) ?? structuredClone(field.start)];
    });
    return Object.fromEntries(pairs) as Values<F>;
  }

  read(given: Readonly<Record<string, string>>): void {
    Object.assign(this.now, this.#values((key) => given[key] ?? null));
  }

  write(all = false): Record<string, string> {
    const texts = Object.entries(this.fields).map(([key, field]) => ({
      key,
      said: field.write(this.now[key]),
      start: field.write(field.start),
    }));
    return Object.fromEntries(texts.filter(({ said, start }) => all || said !== start).map(({ key, said }) => [key, said]));
  }

  reset(): void {
    this.read({});
  }
}

const SETTLE = 150; // milliseconds: browsers stop pages that rewrite their address without pause

class Lessons {
  #parts: Kept[] = $state.raw([]);
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The query that the parts agree with: as it was read last, or written. */
  #agreed: string = "";
  /** When something last changed; the parts themselves arrive at the start, and what they hold is awaited. */
  #changed = performance.now();

  constructor() {
    $effect.root(() => {
      $effect(() => {
        const { area, query } = router.route;
        if (area === "learn") untrack(() => this.#take(query));
      });
      $effect(() => {
        const { area, path } = router.route;
        clearTimeout(this.#timer);
        const calm = performance.now() - this.#changed > SETTLE;
        this.#changed = performance.now();
        if (area !== "learn") return;
        const to = href("learn", path, this.#query(this.#parts));
        // The first change after a rest is written at once, so that a reload right after it keeps it.
        if (calm) untrack(() => this.#settle(to));
        else this.#timer = setTimeout(() => this.#settle(to), SETTLE);
      });
    });
  }

  register<K extends Kept>(part: K): K {
    this.#set(part, router.route.query);
    this.#parts = [...this.#parts, part];
    return part;
  }

  /** Whether anything of these parts differs from its start. */
  touched(names: readonly string[]): boolean {
    return Object.keys(this.#query(this.#of(names))).length > 0;
  }

  has(names: readonly string[]): boolean {
    return this.#of(names).length > 0;
  }

  reset(names: readonly string[]): void {
    for (const part of this.#of(names)) part.reset();
  }

  /** An address that opens on a part as it is now, the untouched fields too. */
  link(names: readonly string[]): string {
    const bare = location.href.split("#")[0]!;
    return bare + href("learn", [names[0]!], { ...this.#query(this.#of(names), true), ...this.#query([language]) });
  }

  #of(names: readonly string[]): Kept[] {
    return this.#parts.filter(({ name }) => names.includes(name));
  }

  #query(parts: readonly Kept[], all = false): Record<string, string> {
    const pairs = parts.flatMap((part) => Object.entries(part.write(all)).map(([key, value]) => [`${part.name}.${key}`, value]));
    return Object.fromEntries(pairs) as Record<string, string>;
  }

  #take(query: Readonly<Record<string, string>>): void {
    const asked = JSON.stringify(query);
    if (asked === this.#agreed) return;
    this.#agreed = asked;
    for (const part of this.#parts) this.#set(part, query);
  }

  #set(part: Kept, query: Readonly<Record<string, string>>): void {
    const own = Object.entries(query).filter(([key]) => key.startsWith(`${part.name}.`));
    if (own.length) part.read(Object.fromEntries(own.map(([key, value]) => [key.slice(part.name.length + 1), value])));
  }

  #settle(to: string): void {
    if (location.hash === to || (location.hash === "" && to === href("learn"))) return;
    this.#agreed = JSON.stringify(Object.fromEntries(new URLSearchParams(to.split("?")[1] ?? "")));
    router.replace(to);
  }
}

export const lessons = new Lessons();

const TEXTS = import.meta.glob<Texts>("../../../src/limelight/texts/*.json", { import: "default" });
language.bring((code) => TEXTS[`../../../src/limelight/texts/${code}.json`]!());
lessons.register(language);

export const register = <K extends Kept>(part: K): K => lessons.register(part);

export const keep = <F extends Fields>(name: string, fields: F): Fieldwise<F> =>
  lessons.register(new Fieldwise(name, fields));
