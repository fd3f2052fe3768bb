/**
 * The projector: one part at a time in large type, for a room. PageDown and PageUp, which the keys of a
 * presenter send, go on and back once there is nothing left to scroll; Escape leaves. That it is on stands
 * in the address, so that a link opens a lesson the way a class will see it.
 */
import { href, router } from "$lib/router.svelte";
import { flag, keep } from "./state.svelte";

const kept = keep("learn", { projector: flag(false) });
const NEAR = 4; // pixels: so close to its end a page counts as scrolled through

class Projector {
  get on(): boolean {
    return kept.now.projector;
  }

  start(part: string): void {
    kept.now.projector = true;
    router.go(href("learn", [part]));
  }

  leave(): void {
    kept.now.projector = false;
  }

  /** The part before or after this one, where there is one. */
  go(parts: readonly string[], now: string, by: 1 | -1): void {
    const next = parts[parts.indexOf(now) + by];
    if (next) router.go(href("learn", [next], { "learn.projector": 1 }));
  }

  key(event: KeyboardEvent, parts: readonly string[], now: string): void {
    if (!this.on || event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
    const { scrollTop, scrollHeight, clientHeight } = document.documentElement;
    if (event.key === "Escape") this.leave();
    else if (event.key === "PageDown" && scrollTop + clientHeight >= scrollHeight - NEAR) this.go(parts, now, 1);
    else if (event.key === "PageUp" && scrollTop <= NEAR) this.go(parts, now, -1);
    else return;
    event.preventDefault();
  }
}

export const projector = new Projector();
