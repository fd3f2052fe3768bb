/** The heads of the layers of the lessons' real model, each fetched once. */
import { getCapture, getHeadRows, type CaptureInfo } from "$lib/api";
import { trace, type Trace } from "$lib/attention";
import { told } from "$lib/format";
import { t } from "$lib/language.svelte";
import { CAPTURE, finite } from "../head.svelte";

class Layers {
  capture: CaptureInfo | null = $state.raw(null);
  trouble: string | null = $state(null);
  #found: Record<number, readonly Trace[]> = $state({});
  #asked = new Set<number>();

  /** The traces of a layer's heads; null until they are there. */
  of(layer: number): readonly Trace[] | null {
    return this.#found[layer] ?? null;
  }

  load(layer: number): void {
    if (this.#asked.has(layer)) return;
    this.#asked.add(layer);
    void this.#fetch(layer).catch((error: unknown) => {
      this.trouble = told(error);
    });
  }

  async #fetch(layer: number): Promise<void> {
    this.capture ??= await getCapture(CAPTURE);
    const site = this.capture.sites.find((each) => each.layer === layer);
    if (!site) throw new Error(t`The capture has no layer ${layer}.`);
    const rows = await Promise.all(Array.from({ length: site.heads }, (_, head) => getHeadRows(CAPTURE, site.index, head)));
    this.#found[layer] = rows.map(({ query, key, scale, softcap, sink, mask }) =>
      trace(finite(query), finite(key), null, { scale: scale ?? NaN, softcap, sink, mask }),
    );
  }
}

export const layers = new Layers();
