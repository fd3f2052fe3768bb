// @vitest-environment happy-dom
import { expect, it } from "vitest";
import { href, parse, router } from "./router.svelte";

it("an address holds what is shown, and gives it back", () => {
  const to = href("explore", ["my file", 11], { head: 1, pool: "max", row: null });
  expect(to).toBe("#/explore/my%20file/11?head=1&pool=max");
  expect(parse(to)).toEqual({ area: "explore", path: ["my file", "11"], query: { head: "1", pool: "max" } });
});

it("what cannot be read leads to the lessons, not to an error", () => {
  expect(parse("")).toEqual({ area: "learn", path: [], query: {} });
  expect(parse("#/nowhere").area).toBe("learn");
  expect(parse("#/explore/%E0%A4%A")).toMatchObject({ area: "explore", path: ["%E0%A4%A"] });
});

it("a slash or a question mark in a name stays in the name", () => {
  expect(parse(href("explore", ["a/b?c#d"])).path).toEqual(["a/b?c#d"]);
});

it("an entry that the browser has gone to is not rewritten before the page has read it", () => {
  router.replace("#/explore/sample?at=1");
  expect([location.hash, router.route.query]).toEqual(["#/explore/sample?at=1", { at: "1" }]);
  history.replaceState(null, "", "#/explore/sample?at=2"); // as going back does: the event comes later
  router.replace("#/explore/sample?at=1&zoom=3");
  expect(location.hash).toBe("#/explore/sample?at=2");
  dispatchEvent(new Event("hashchange"));
  expect(router.route.query).toEqual({ at: "2" });
});
