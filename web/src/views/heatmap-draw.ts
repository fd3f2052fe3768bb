/** The drawing of a heat-map on its canvas: tiles, gaps, numbers, labels, marks. */
import { colour, ink, paint } from "$lib/colour";
import { HIDDEN, HIDDEN_CHANGE } from "$lib/schema";
import { fixed } from "$lib/format";
import { edge, tickStep, type Plot, type View } from "$lib/plot";
import type { Range } from "$lib/source";
import type { Theme } from "$lib/theme.svelte";
import type { Placed } from "$lib/tiles";

type Ink = "ink" | "ink-soft" | "ink-faint" | "surface-raised" | "light" | "focus";
type Spot = { readonly row: number; readonly column: number };

export interface Scene {
  readonly plot: Plot;
  readonly view: View;
  readonly rows: number;
  readonly columns: number;
  readonly rowTexts: readonly string[];
  readonly columnTexts: readonly string[];
  readonly gain: number;
  readonly signed: boolean;
  readonly active: Spot | null;
  readonly focused: boolean;
  readonly selected: Spot | null;
  readonly theme: Theme;
  readonly down: Range;
  readonly across: Range;
  readonly colours: Readonly<Record<Ink, string>>;
  readonly font: number;
}

const GAP_FROM = 7; // pixels a cell needs before gaps between cells are drawn
const NUMBER_FROM = 30; // and before its number is written in it
const SLANT = -Math.PI / 3.6;

export function draw(canvas: HTMLCanvasElement, tiles: readonly Placed[], scene: Scene): void {
  const { plot } = scene;
  const ratio = globalThis.devicePixelRatio || 1;
  const width = plot.left + plot.width + plot.right + 2;
  const height = plot.top + plot.height + 2;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  if (!context) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `${scene.font}px ${getComputedStyle(canvas).fontFamily}`;

  context.save();
  context.translate(plot.left, plot.top);
  context.beginPath();
  context.roundRect(0, 0, plot.width, plot.height, 4);
  context.clip();
  context.imageSmoothingEnabled = false;
  for (const tile of tiles) place(context, tile, scene);
  gaps(context, scene);
  numbers(context, tiles, scene);
  context.restore();

  context.save();
  context.translate(plot.left, plot.top);
  marks(context, scene);
  context.restore();
  rowLabels(context, scene);
  columnLabels(context, scene);
}

const x = (scene: Scene, j: number): number => edge(j, scene.columns, scene.plot.width, scene.view.k, scene.view.x);
const y = (scene: Scene, i: number): number => edge(i, scene.rows, scene.plot.height, scene.view.k, scene.view.y);
const cellWidth = (scene: Scene): number => (scene.plot.width * scene.view.k) / scene.columns;
const cellHeight = (scene: Scene): number => (scene.plot.height * scene.view.k) / scene.rows;

function place(context: CanvasRenderingContext2D, tile: Placed, scene: Scene): void {
  if (!tile.image) {
    const image = document.createElement("canvas");
    image.width = tile.width;
    image.height = tile.height;
    const inner = image.getContext("2d");
    if (!inner || !tile.width || !tile.height) return;
    const pixels = inner.createImageData(tile.width, tile.height);
    paint(tile.values, pixels.data, scene.theme, scene.gain, scene.signed);
    inner.putImageData(pixels, 0, 0);
    tile.image = image;
  }
  const left = x(scene, tile.columns[0]);
  const top = y(scene, tile.rows[0]);
  context.drawImage(tile.image, left, top, x(scene, tile.columns[1]) - left, y(scene, tile.rows[1]) - top);
}

function gaps(context: CanvasRenderingContext2D, scene: Scene): void {
  if (Math.min(cellWidth(scene), cellHeight(scene)) < GAP_FROM) return;
  const thick = cellWidth(scene) > 24 ? 2 : 1;
  context.fillStyle = scene.colours["surface-raised"];
  for (let j = scene.across[0] + 1; j < scene.across[1]; j++) {
    context.fillRect(x(scene, j) - thick / 2, 0, thick, scene.plot.height);
  }
  for (let i = scene.down[0] + 1; i < scene.down[1]; i++) {
    context.fillRect(0, y(scene, i) - thick / 2, scene.plot.width, thick);
  }
}

function numbers(context: CanvasRenderingContext2D, tiles: readonly Placed[], scene: Scene): void {
  if (cellWidth(scene) < NUMBER_FROM || cellHeight(scene) < scene.font + 4) return;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const size = Math.min(scene.font, cellWidth(scene) * 0.34);
  context.font = context.font.replace(/[\d.]+px/, `${size}px`);
  for (const tile of tiles) {
    if (tile.level !== 0) continue;
    for (let i = Math.max(scene.down[0], tile.rows[0]); i < Math.min(scene.down[1], tile.rows[1]); i++) {
      for (let j = Math.max(scene.across[0], tile.columns[0]); j < Math.min(scene.across[1], tile.columns[1]); j++) {
        const value = tile.values[(i - tile.rows[0]) * tile.width + j - tile.columns[0]]!;
        if (value === (scene.signed ? HIDDEN_CHANGE : HIDDEN) || Number.isNaN(value)) continue;
        context.fillStyle = ink(colour(value * scene.gain, scene.theme));
        context.fillText(fixed(value, 2), (x(scene, j) + x(scene, j + 1)) / 2, (y(scene, i) + y(scene, i + 1)) / 2 + 1);
      }
    }
  }
}

function marks(context: CanvasRenderingContext2D, scene: Scene): void {
  const { plot, active, selected, colours } = scene;
  context.beginPath();
  context.rect(-3, -3, plot.width + 6, plot.height + 6);
  context.clip();
  if (active) {
    context.fillStyle = colours.ink;
    context.globalAlpha = 0.07;
    context.fillRect(0, y(scene, active.row), plot.width, cellHeight(scene));
    context.fillRect(x(scene, active.column), 0, cellWidth(scene), plot.height);
    context.globalAlpha = 1;
    outline(context, scene, active, scene.focused ? colours.focus : colours["ink-soft"], 2);
  }
  if (selected) outline(context, scene, selected, colours.ink, 2.5);
}

function outline(context: CanvasRenderingContext2D, scene: Scene, at: Spot, stroke: string, thick: number): void {
  // A cell of a pixel or less still gets a mark that can be seen.
  const least = 5;
  const width = Math.max(least, cellWidth(scene));
  const height = Math.max(least, cellHeight(scene));
  const left = x(scene, at.column) + cellWidth(scene) / 2 - width / 2;
  const top = y(scene, at.row) + cellHeight(scene) / 2 - height / 2;
  context.lineWidth = thick;
  context.strokeStyle = stroke;
  context.beginPath();
  context.roundRect(left, top, width, height, Math.min(4, width / 4));
  context.stroke();
}

/** How bold the label of what is chosen or pointed at is: every label has the room for it. */
export const BOLD = 600;

function tell(context: CanvasRenderingContext2D, scene: Scene, chosen: boolean): void {
  context.fillStyle = chosen ? scene.colours.ink : scene.colours["ink-soft"];
  const family = context.font.slice(context.font.indexOf("px ") + 3);
  context.font = `${chosen ? BOLD : 400} ${scene.font}px ${family}`;
}

function rowLabels(context: CanvasRenderingContext2D, scene: Scene): void {
  const { plot, down, rowTexts, active, selected } = scene;
  const height = cellHeight(scene);
  const texts = height >= 11 && rowTexts.length > 0;
  const step = texts ? 1 : tickStep(height, 48);
  context.save();
  context.beginPath();
  context.rect(0, plot.top - scene.font * 0.7, plot.left, plot.height + scene.font * 1.4);
  context.clip();
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const i of labelled(down, step, texts ? null : active?.row, (scene.font * 1.3) / height)) {
    const chosen = active?.row === i || selected?.row === i;
    tell(context, scene, chosen);
    const text = texts || active?.row === i ? (rowTexts[i] ?? String(i)) : i.toLocaleString("en");
    context.fillText(clip(context, text, plot.left - 12), plot.left - 9, plot.top + y(scene, i) + height / 2 + 1);
  }
  context.restore();
}

function columnLabels(context: CanvasRenderingContext2D, scene: Scene): void {
  const { plot, across, columnTexts, active, selected } = scene;
  const width = cellWidth(scene);
  const texts = width >= 13 && columnTexts.length > 0;
  const step = texts ? 1 : tickStep(width, 64);
  context.textBaseline = "middle";
  for (const j of labelled(across, step, texts ? null : active?.column, (scene.font * 2.5) / width)) {
    const middle = x(scene, j) + width / 2;
    if (middle < 0 || middle > plot.width) continue;
    const chosen = active?.column === j || selected?.column === j;
    tell(context, scene, chosen);
    const named = texts || active?.column === j;
    const text = named ? (columnTexts[j] ?? String(j)) : j.toLocaleString("en");
    context.save();
    context.translate(plot.left + middle, plot.top - 12);
    if (plot.flat || !named) {
      context.textAlign = "center";
      context.fillText(named ? clip(context, text, width - 4) : text, 0, 0); // ticks are far apart
    } else {
      context.textAlign = "left";
      context.translate(-2, 4);
      context.rotate(SLANT);
      context.fillText(clip(context, text, plot.label), 0, 0);
    }
    context.restore();
  }
}

/** Which cells get a label: every step-th, and the one pointed at, which those near it make room for. */
export function labelled([from, to]: Range, step: number, pointed: number | null | undefined, room: number): number[] {
  const first = Math.ceil(from / step) * step;
  const all = Array.from({ length: Math.max(0, Math.ceil((to - first) / step)) }, (_, n) => first + n * step);
  return typeof pointed === "number" ? [...all.filter((n) => Math.abs(n - pointed) >= room), pointed] : all;
}

function clip(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > room) end--;
  return `${text.slice(0, end)}…`;
}
