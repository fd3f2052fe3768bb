/** The real head of the lessons: SmolLM2-135M, layer 11, head 1, from the capture that comes along. */
import { getCapture, getCaptures, getHeadRows, type HeadRows } from "$lib/api";
import { trace, type Trace } from "$lib/attention";
import { told } from "$lib/format";

export const CAPTURE = "llama";
export const LAYER = 11;
export const HEAD = 1;

export interface RealHead {
  readonly rows: HeadRows;
  readonly trace: Trace;
  readonly model: string;
  /** Its place in the capture. */
  readonly site: number;
}

class Head {
  real: RealHead | null = $state.raw(null);
  /** Why there is none; the toy stands in. */
  trouble: string | null = $state(null);
  #asked = false;

  load(): void {
    if (this.#asked) return;
    this.#asked = true;
    void this.#fetch().catch((error: unknown) => {
      this.trouble = told(error);
    });
  }

  async #fetch(): Promise<void> {
    const there = await getCaptures();
    if (!there.some(({ id }) => id === CAPTURE)) throw new Error("this installation has no captures inside");
    const capture = await getCapture(CAPTURE);
    const site = capture.sites.find(({ layer }) => layer === LAYER);
    if (!site) throw new Error(`The capture has no layer ${LAYER}.`);
    const rows = await getHeadRows(CAPTURE, site.index, HEAD);
    const { query, key, value, scale, softcap, sink, mask } = rows;
    const how = { scale: scale ?? NaN, softcap, sink, mask };
    this.real = { rows, trace: trace(finite(query), finite(key), value && finite(value), how), model: capture.model, site: site.index };
  }
}

export const head = new Head();

/** What travels as null is not a number. */
export const finite = (rows: HeadRows["query"]): number[][] => rows.map((row) => row.map((x) => x ?? NaN));
