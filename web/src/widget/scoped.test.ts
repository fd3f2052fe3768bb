import { expect, it } from "vitest";
import { scoped } from "./scoped";

it("says of the host what was said of the page", () => {
  expect(scoped(":root{--a:1}body{margin:0}")).toBe(":host{--a:1}:host{margin:0}");
  expect(scoped(':root[data-theme="dark"]{color-scheme:dark}')).toBe(':host([data-theme="dark"]){color-scheme:dark}');
  expect(scoped(".body{margin:0}")).toBe(".body{margin:0}");
});

it("has a rem of its own, and leaves that of conditions", () => {
  expect(scoped("a{gap:.5rem 1rem;width:calc(100% - 2.25rem)}")).toBe("a{gap:8px 16px;width:calc(100% - 36px)}");
  expect(scoped("@media (min-width:56rem){a{gap:1rem}}")).toBe("@media (min-width:56rem){a{gap:16px}}");
  expect(scoped(".rem{margin:-.5rem;--h1rem:0}")).toBe(".rem{margin:-8px;--h1rem:0}");
});
