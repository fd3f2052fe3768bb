/**
 * The address behind the # holds what is shown: #/explore/llama/11?head=1&row=3.
 * It never reaches the server or its logs, and works the same from a file.
 */
export const AREAS = ["learn", "explore", "watch"] as const;
export type Area = (typeof AREAS)[number];

export interface Route {
  readonly area: Area;
  /** What follows the area, decoded: ["llama", "11"]. */
  readonly path: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [first, ...rest] = path.split("/").filter(Boolean).map(decode);
  const area = AREAS.find((name) => name === first) ?? "learn";
  return { area, path: rest, query: Object.fromEntries(new URLSearchParams(query)) };
}

export function href(
  area: Area,
  path: readonly (string | number)[] = [],
  query: Readonly<Record<string, string | number | boolean | null | undefined>> = {},
): string {
  const where = ["#", area, ...path.map((part) => encodeURIComponent(part))].join("/");
  const given = Object.entries(query).flatMap(([key, value]) =>
    value === null || value === undefined ? [] : [[key, String(value)]],
  );
  const search = new URLSearchParams(given).toString();
  return search ? `${where}?${search}` : where;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

class Router {
  #read = globalThis.location?.hash ?? "";
  route: Route = $state.raw(parse(this.#read));
  /** How often someone has gone somewhere: by a link, the address bar or the history, not by `replace`. */
  visits = $state(0);

  constructor() {
    globalThis.addEventListener?.("hashchange", () => {
      this.#take();
      this.visits++;
    });
  }

  #take(): void {
    this.#read = location.hash;
    this.route = parse(this.#read);
  }

  /** Goes there as a new entry of the browser's history. */
  go(to: string): void {
    location.hash = to;
  }

  /**
   * Rewrites the present entry: for what changes often, such as the zoom of a map. Where the browser has
   * gone elsewhere and the page has yet to hear of it, that entry is left as it is.
   */
  replace(to: string): void {
    if (location.hash !== this.#read) return;
    history.replaceState(history.state, "", location.href.split("#")[0] + to);
    this.#take();
  }
}

export const router = new Router();
