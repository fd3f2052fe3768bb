/**
 * The notebook's view of a capture, for anywidget. It lives in a shadow root, so that neither the
 * notebook's styles reach in nor its own out.
 */
import { mount, unmount } from "svelte";
import type { BundleData } from "$lib/schema";
import { theme } from "$lib/theme.svelte";
import "../tokens.css";
import "../base.css";
import Report from "../report/Report.svelte";
import { Kernel, kernelProvider, type Model } from "./kernel";
import { scoped } from "./scoped";

interface Given {
  readonly model: Model;
  readonly el: HTMLElement;
}

/** Light or dark as the notebook is, in JupyterLab and VS Code; else as the system. */
function notebookTheme(): "light" | "dark" | null {
  const { body } = document;
  if (body.dataset["jpThemeLight"] !== undefined) return body.dataset["jpThemeLight"] === "false" ? "dark" : "light";
  if (body.classList.contains("vscode-dark") || body.classList.contains("vscode-high-contrast")) return "dark";
  return body.classList.contains("vscode-light") ? "light" : null;
}

function render({ model, el }: Given): () => void {
  const host = document.createElement("div");
  host.className = "limelight-widget";
  el.append(host);
  const root = host.attachShadow({ mode: "open" });
  const style = document.createElement("style");
  style.textContent = `${scoped(String(model.get("style_sheet") ?? ""))}
    :host { display: block; box-sizing: border-box; width: 100%; min-width: 0; background: var(--surface); color: var(--ink);
      border: 1px solid var(--line); border-radius: var(--radius); font-size: 14px; }`;
  const target = document.createElement("div");
  root.append(style, target);

  const follow = (): void => {
    const now = notebookTheme();
    if (now) host.dataset["theme"] = now;
    else delete host.dataset["theme"];
    // Set, not chosen: the choice of a notebook is not ours to keep.
    theme.choice = now ?? "auto";
  };
  follow();
  const watcher = new MutationObserver(follow);
  watcher.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light"] });

  const bundle = JSON.parse(String(model.get("data"))) as BundleData;
  const kernel = new Kernel(model);
  const view = mount(Report, { target, props: { bundle, provider: kernelProvider(bundle, kernel), inside: true } });
  return () => {
    watcher.disconnect();
    kernel.stop();
    void unmount(view);
    host.remove();
  };
}

export default { render };
