/**
 * One source, four outputs in the Python package's static folder:
 *   npm run build           the studio app (index.html + hashed assets), then widget, report and lessons
 *   vite build --mode widget    widget.js (an ES module for anywidget) + widget.css
 *   vite build --mode report    report.js (one classic script) + report.css, inlined by Python
 *   vite build --mode lessons   lessons.js + lessons.css, inlined or put beside its pages by Python
 */
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { fileURLToPath } from "node:url";
import type { UserConfig } from "vite";
import { defineConfig } from "vitest/config";

const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const STATIC = at("../src/limelight/studio/static");

function single(name: "widget" | "report" | "lessons", format: "es" | "iife"): NonNullable<UserConfig["build"]> {
  return {
    outDir: STATIC,
    emptyOutDir: false,
    copyPublicDir: false,
    cssCodeSplit: false,
    lib: {
      entry: at(`./src/${name}/main.ts`),
      formats: [format],
      name: "limelight",
      fileName: () => `${name}.js`,
      cssFileName: name,
    },
  };
}

export default defineConfig(({ mode }) => ({
  base: "./",
  plugins: [svelte()],
  resolve: {
    alias: { $lib: at("./src/lib"), $views: at("./src/views") },
    // Component tests run in a simulated browser and need Svelte's browser build.
    ...(process.env["VITEST"] ? { conditions: ["browser"] } : {}),
  },
  define: { "process.env.NODE_ENV": JSON.stringify("production") },
  build:
    mode === "widget"
      ? single("widget", "es")
      : mode === "report" || mode === "lessons"
        ? single(mode, "iife")
        : { outDir: STATIC, emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  server: { host: "127.0.0.1", proxy: { "/api": "http://127.0.0.1:8765" } },
  preview: { host: "127.0.0.1" },
  // A simulated browser takes half a second a file: those that need one name it in their first line.
  test: { environment: "node", include: ["src/**/*.test.ts"], testTimeout: 30_000 },
}));
