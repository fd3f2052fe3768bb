/**
 * The secret of this tab, which every request to the studio carries.
 *
 * A browser sends cookies to every port of a host, so a page on another port can have them replayed.
 * What stands in a tab's storage belongs to one origin, port and all. The studio writes the secret into
 * the page that is opened with the token; here it moves into the storage, and the token out of the
 * address. A tab that is opened later asks its neighbours of the same origin.
 */
export const HEADER = "X-Limelight-Tab";
export const PROTOCOL = "limelight";

const NAME = "limelight-tab";
const WAIT = 400; // milliseconds for a neighbour to answer

/** A new secret is everyone's; an answer is for those that have none, since it may be of a studio that is gone. */
type Said = { readonly ask: true } | { readonly secret: string } | { readonly answer: string };

let neighbours: BroadcastChannel | null = null;
let asked: Promise<string> | null = null;

/** Take what the page was given, and answer other tabs; once, when the page starts. */
export function enter(): void {
  const given = document.querySelector<HTMLMetaElement>(`meta[name="${NAME}"]`);
  neighbours = new BroadcastChannel(NAME);
  if (given) {
    keep(given.content);
    given.remove();
    neighbours.postMessage({ secret: given.content } satisfies Said); // the studio may have been started anew
    const address = new URL(location.href);
    address.searchParams.delete("token");
    history.replaceState(history.state, "", address);
  }
  neighbours.addEventListener("message", ({ data }: MessageEvent<Said>) => {
    const held = sessionStorage.getItem(NAME);
    if ("secret" in data) keep(data.secret);
    else if ("answer" in data) keep(held ?? data.answer);
    else if (held) neighbours?.postMessage({ answer: held } satisfies Said);
  });
}

/** The secret; empty where neither this tab nor a neighbour has one, and the studio then says what to do. */
export async function secret(): Promise<string> {
  const held = sessionStorage.getItem(NAME);
  if (held || !neighbours) return held ?? "";
  asked ??= new Promise((resolve) => {
    const done = (): void => {
      neighbours?.removeEventListener("message", heard);
      clearTimeout(timer);
      asked = null;
      resolve(sessionStorage.getItem(NAME) ?? "");
    };
    const heard = (): void => {
      if (sessionStorage.getItem(NAME)) done();
    };
    const timer = setTimeout(done, WAIT);
    neighbours?.addEventListener("message", heard);
    neighbours?.postMessage({ ask: true } satisfies Said);
  });
  return asked;
}

/** It was refused: the studio has been started anew, and a neighbour may have its new one. */
export function forget(refused: string): void {
  if (sessionStorage.getItem(NAME) === refused) sessionStorage.removeItem(NAME);
}

function keep(value: string): void {
  sessionStorage.setItem(NAME, value);
}
