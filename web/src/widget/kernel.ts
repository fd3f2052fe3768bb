/**
 * A notebook's kernel as a provider: maps of any length and every cell come from it. Where it does
 * not answer (a notebook that is only read), what the widget holds is drawn.
 */
import type { BundleData, CellData, LinesData, StripData } from "$lib/schema";
import type { Source } from "$lib/source";
import { once, siteOf, type HeadAt, type Provider } from "../explore/provider";
import { bundleProvider, isComplete } from "../report/bundle";

/** What anywidget gives a view. */
export interface Model {
  get(name: string): unknown;
  send(content: unknown): void;
  on(name: "msg:custom", callback: (message: unknown, buffers: DataView[]) => void): void;
  off(name: "msg:custom", callback: (message: unknown, buffers: DataView[]) => void): void;
}

const PATIENCE = 8000; // milliseconds; a kernel that computes something else answers late
const EXACT = 256; // tokens up to which the widget's own vectors give the whole map

interface Reply {
  readonly found: unknown;
  readonly buffers: DataView[];
}

export class Kernel {
  readonly #model: Model;
  readonly #waiting = new Map<number, { resolve: (reply: Reply) => void; reject: (error: Error) => void }>();
  #asked = 0;
  /** Whether it ever answered; once it did not, the next questions are not worth a wait. */
  #deaf = false;

  constructor(model: Model) {
    this.#model = model;
    model.on("msg:custom", this.#hear);
  }

  stop(): void {
    this.#model.off("msg:custom", this.#hear);
    this.#waiting.clear();
  }

  ask(question: object, signal: AbortSignal): Promise<Reply> {
    if (this.#deaf) return Promise.reject(new Error("The kernel does not answer."));
    const id = ++this.#asked;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        this.#deaf = true;
        reject(new Error("The kernel does not answer."));
      }, PATIENCE);
      const end = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(id);
      };
      this.#waiting.set(id, {
        resolve: (reply) => (end(), resolve(reply)),
        reject: (error) => (end(), reject(error)),
      });
      signal.addEventListener("abort", () => (end(), reject(new Error("No longer wanted."))));
      this.#model.send({ id, ...question });
    });
  }

  readonly #hear = (message: unknown, buffers: DataView[]): void => {
    if (!message || typeof message !== "object" || !("id" in message)) return;
    const asked = this.#waiting.get(Number(message.id));
    if ("error" in message) asked?.reject(new Error(String(message.error)));
    else if ("found" in message) asked?.resolve({ found: message.found, buffers });
  };
}

export function kernelProvider(bundle: BundleData, kernel: Kernel): Provider {
  const own = bundleProvider(bundle);
  /** The kernel's answer, or the widget's own where there is none. */
  async function first<T>(question: object, signal: AbortSignal, mine: () => Promise<T | null>): Promise<T | null> {
    try {
      return (await kernel.ask(question, signal)).found as T;
    } catch (error) {
      if (signal.aborted) throw error;
      return mine();
    }
  }
  /** Whether the widget's own vectors give all of the head at once. */
  const readable = (at: HeadAt): boolean => {
    const { queries, keys } = siteOf(own.info, at.site);
    return isComplete(bundle, at) && Math.max(queries, keys) <= EXACT;
  };
  return {
    ...own,
    pools: ["max", "mean"],
    source: once((at, pool) => {
      const held = own.source(at, "max");
      if (readable(at)) return held;
      const asking: Source = {
        ...held,
        id: `kernel ${at.site}.${at.head}.${pool}`,
        async tile(rows, columns, height, width, signal) {
          try {
            const { buffers } = await kernel.ask({ ask: "tile", ...at, rows, columns, height, width, pool }, signal);
            const bytes = buffers[0]!;
            const values = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
            return { rows, columns, height, width, values };
          } catch (error) {
            if (signal.aborted) throw error;
            return held.tile(rows, columns, height, width, signal);
          }
        },
      };
      return asking;
    }),
    cell: (at, row, column, signal) =>
      isComplete(bundle, at)
        ? own.cell(at, row, column, signal)
        : first<CellData>({ ask: "cell", ...at, row, column }, signal, () => own.cell(at, row, column, signal)),
    strips: () => true,
    strip: (at, side, index, signal) =>
      readable(at)
        ? own.strip(at, side, index, signal)
        : first<StripData>({ ask: "strip", ...at, side, index }, signal, () => own.strip(at, side, index, signal)),
    lines: (at, rows, k, signal) =>
      readable(at)
        ? own.lines(at, rows, k, signal)
        : first<LinesData>({ ask: "lines", ...at, rows, k }, signal, () => own.lines(at, rows, k, signal)),
  };
}
