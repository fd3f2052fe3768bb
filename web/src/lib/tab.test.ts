// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

/** Tabs of one origin: what one posts the others hear. */
class Channel extends EventTarget {
  static all: Channel[] = [];
  constructor() {
    super();
    Channel.all.push(this);
  }
  postMessage(data: unknown): void {
    for (const other of Channel.all) if (other !== this) other.dispatchEvent(new MessageEvent("message", { data }));
  }
}

beforeEach(() => {
  vi.stubGlobal("BroadcastChannel", Channel);
  vi.resetModules();
  sessionStorage.clear();
  Channel.all = [];
});

afterEach(() => {
  vi.unstubAllGlobals();
  document.head.replaceChildren();
});

describe("the secret of a tab", () => {
  it("moves from the page into the tab, and the token out of the address", async () => {
    document.head.innerHTML = '<meta name="limelight-tab" content="s3cret">';
    history.replaceState(null, "", "/?a=1&token=t#/learn");
    const { enter, secret } = await import("./tab");
    enter();
    expect(await secret()).toBe("s3cret");
    expect(document.querySelector("meta")).toBeNull();
    expect(location.search + location.hash).toBe("?a=1#/learn");
  });

  it("is asked of a neighbour, and waited for no longer than a moment", async () => {
    const { enter, secret } = await import("./tab");
    enter();
    expect(await secret()).toBe("");
    const neighbour = new Channel();
    neighbour.addEventListener("message", () => {
      neighbour.postMessage({ ask: true }); // another that was opened at the same time
      neighbour.postMessage({ answer: "theirs" });
    });
    expect(await secret()).toBe("theirs");
  });

  it("is told to a neighbour that asks, and taken from a studio that was started anew", async () => {
    sessionStorage.setItem("limelight-tab", "mine");
    const { enter, secret } = await import("./tab");
    enter();
    const heard: unknown[] = [];
    const neighbour = new Channel();
    neighbour.addEventListener("message", (event) => heard.push((event as MessageEvent).data));
    neighbour.postMessage({ ask: true });
    expect(heard).toEqual([{ answer: "mine" }]);
    neighbour.postMessage({ answer: "older" }); // for another tab
    expect(await secret()).toBe("mine");
    neighbour.postMessage({ secret: "newer" });
    expect(await secret()).toBe("newer");
  });
});
