/**
 * Common words by what a person reads in them: a trait, a thing, a deed or glue. A word that can be
 * two is two. Endings are read off: dogs is a thing, chasing a deed, slowly a trait.
 */
import type { Vector } from "$lib/attention";

export const FEATURES = ["trait", "thing", "deed", "glue"] as const;

const TRAIT: Vector = [1, 0, 0, 0];
const THING: Vector = [0, 1, 0, 0];
const DEED: Vector = [0, 0, 1, 0];
const GLUE: Vector = [0, 0, 0, 1];

const list = (text: string): string[] => text.trim().split(/\s+/);

const TRAITS = list(`
  afraid alone angry awake bad beautiful big bitter black blue bold brave bright brown busy calm careful cheap clean
  clear clever cold cool cruel curious dangerous dark dead deep different dirty dry dull eager early easy empty famous
  far fast fat fine first foreign free fresh full funny gentle glad golden good grand great green grey happy hard heavy
  high honest hot huge hungry important kind large last late lazy light little lonely long loud lovely low lucky mad
  narrow near new nice noisy old pale plain poor pretty proud quick quiet ready red rich right rough round sad safe
  same sharp short sick silent simple sleepy slow small smart soft sour special steep strange strong sudden sweet tall
  thick thin tired tiny true ugly warm weak well wet white whole wide wild wise wrong yellow young
`);
const THINGS = list(`
  air animal apple arm army art baby bag ball bank bear beach bed bee bell bird boat body bone book bottle box boy
  bread brother bus cake car castle cat chair child church city clock cloud coat coffee cow cup daughter day desk
  doctor dog door dragon dress ear earth egg eye face family farm farmer father field finger fire fish flower foot
  forest fox friend frog garden gate ghost girl glass gold grass hair hand hat head heart hill home horse house hour
  ice idea island job key king kitchen knife lake lamp land language leaf leg letter lion machine man map market milk
  minute mirror model money monkey month moon mother mountain mouse mouth music name night nose ocean office owl paper
  park path pen people person phone picture pig place poet pond prince prisoner queen question rabbit rain river road
  robot rock roof room rose sailor salt school sea seed sentence ship shoe shop sister sky snake snow soldier son
  song soup spider spoon star stone storm story street student sun sword table tail teacher thing tiger time token
  tooth town train tree wall war water weather week wheel wind window winter wolf woman wood word world year zebra
`);
const DEEDS = list(`
  add agree appear arrive ask bake become begin believe bite blow borrow break bring build burn buy carry catch
  chase choose climb close come cook count cry cut dig draw drink drive eat enjoy explain fall feed feel fight fill
  find fly follow forget get give go grow happen hear help hide hit hold hope hug hunt hurry jump keep kick kill kiss
  know laugh learn leave lend let lie like listen live look lose love make meet miss move need obey open pay play
  pour pray promise pull push put read remember rest ride ring rise run save say see seem sell send serve shine shout
  show shut sing sit sleep smell smile sneeze speak spend stand start stay steal stop swim take talk taste teach tear
  tell thank think throw touch travel try turn understand use visit wait wake walk want warn wash watch wear win wish
  work worry write
`);
const GLUES = list(`
  a about above across after again against all along also although always among an and another any around as at back
  because before behind below beside between beyond both but by down during each either enough even ever every few
  for from here how however if in inside into just less many more most much near neither never no nor not now of off
  often on once only onto or out over per perhaps quite rather since so some soon still such than that the then there
  these this those though through till to together too toward towards under unless until up upon very what when where
  whether which while who whose why with within without yes yet
`);

/** What is two things, or another form of one; these stand before the lists. */
const EXACT: Readonly<Record<string, Vector>> = {
  the: [0, 0.1, 0, 1], curious: [1, 0, 0.1, 0], cat: [0.1, 1, 0, 0], watched: [0, 0.1, 1, 0], bird: [0.2, 0.9, 0.1, 0],
  // who is meant: they point at things without naming them
  ...each("i you he she it we they me him her us them someone everyone nobody nothing something everything", [0, 0.7, 0, 0.5]),
  ...each("my your his its our their", [0.3, 0, 0, 0.8]),
  ...each("one two three four five six seven eight nine ten hundred thousand", [0.7, 0.2, 0, 0.3]),
  ...each("is are was were be been being am has have had having do does did doing done will would can could may might must shall should", [0, 0, 0.4, 0.8]),
  ...each("don't doesn't didn't isn't aren't wasn't weren't won't can't cannot couldn't wouldn't shouldn't", [0, 0, 0.3, 0.9]),
  // both a thing and a deed
  ...each("answer boat book cook dream drink fight fish fly hope hunt kiss love name play rain rest ring smile snow sleep storm talk travel turn visit walk watch water wish work", [0, 0.6, 0.7, 0]),
  // both a trait and a thing
  ...each("cold dark gold light right evil", [0.8, 0.6, 0, 0]),
  // both a trait and a deed
  ...each("clean close cool dry empty open slow warm calm free", [0.8, 0, 0.6, 0]),
  near: [0.5, 0, 0, 0.7], well: [0.6, 0.3, 0, 0.2], like: [0, 0, 0.6, 0.6], back: [0.2, 0.5, 0.1, 0.5], kind: [0.8, 0.6, 0, 0],
  // forms that no rule gives
  ...each("ate became began bit blew bought brought broke built came caught chose drew drove fed fell felt flew forgot forgave fought found gave got grew heard held hid hit kept knew laid lay led left lent lost made meant met paid put ran rang read rose said sang sat saw sent shone shot shut slept sold spent spoke stole stood swam taught thought threw told took tore understood went woke won wore wrote", DEED),
  ...each("children feet geese men mice people teeth wolves women leaves knives", THING),
  ...each("better best worse worst less least asleep broken hidden frozen lost", TRAIT),
};

function each(words: string, features: Vector): Record<string, Vector> {
  return Object.fromEntries(list(words).map((word) => [word, features]));
}

const LEXICON: ReadonlyMap<string, Vector> = new Map([
  ...([[TRAITS, TRAIT], [THINGS, THING], [DEEDS, DEED], [GLUES, GLUE]] as const).flatMap(([words, features]) =>
    words.map((word): [string, Vector] => [word, features]),
  ),
  ...Object.entries(EXACT),
]);

/** How many words are known as they stand. */
export const KNOWN = LEXICON.size;

/** An ending, what stood before it, and the feature that the stem must have. */
const ENDINGS: readonly { readonly ending: string; readonly stems: readonly string[]; readonly of: readonly number[] }[] = [
  { ending: "ies", stems: ["y"], of: [1, 2] },
  { ending: "es", stems: ["", "e"], of: [1, 2] },
  { ending: "s", stems: [""], of: [1, 2] },
  { ending: "ied", stems: ["y"], of: [2] },
  { ending: "ed", stems: ["", "e"], of: [2] },
  { ending: "ing", stems: ["", "e"], of: [2] },
  { ending: "ier", stems: ["y"], of: [0] },
  { ending: "iest", stems: ["y"], of: [0] },
  { ending: "ily", stems: ["y"], of: [0] },
  { ending: "er", stems: ["", "e"], of: [0] },
  { ending: "est", stems: ["", "e"], of: [0] },
  { ending: "ly", stems: ["", "e"], of: [0] },
];

/** Small letters, without what stands around them. */
export const plainly = (word: string): string =>
  word.toLowerCase().replaceAll("’", "'").replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "");

/** A word's features as a person reads them, or null where it is not known. */
export function read(word: string): number[] | null {
  const plain = plainly(word);
  const stem = plain.replace(/'s$|'$/, "");
  const known = LEXICON.get(plain) ?? LEXICON.get(stem);
  if (known) return [...known];
  for (const { ending, stems, of } of ENDINGS) {
    if (!stem.endsWith(ending)) continue;
    const before = stem.slice(0, -ending.length);
    const doubled = /([^aeiou])\1$/.test(before) ? [before.slice(0, -1)] : [];
    for (const whole of [...stems.map((end) => before + end), ...doubled]) {
      const found = LEXICON.get(whole);
      // The ending settles which of two readings is meant: a watched thing is not a watch.
      if (found && of.some((n) => found[n]! >= 0.5)) return found.map((x, n) => (of.includes(n) ? (of.length > 1 ? x : 1) : 0));
    }
  }
  return null;
}
