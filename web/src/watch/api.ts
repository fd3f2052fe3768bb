/** What Watch asks of the server; shapes as in limelight/studio/api/runs.py. */
import { get, type Real } from "$lib/api";

export interface RunSummary {
  readonly id: string;
  readonly bytes: number;
  /** Seconds since 1970. */
  readonly changed: number;
}

export interface SiteOfRun {
  readonly name: string;
  readonly layer: number;
  readonly heads: number;
  /** Where its heads begin among all heads of the run. */
  readonly first: number;
}

export interface Bound {
  readonly name?: string;
  readonly figure?: string;
  readonly above?: boolean;
  readonly raise_at?: number;
  readonly clear_at?: number;
}

export interface Event {
  readonly event: "raised" | "cleared";
  readonly step: number;
  readonly alarm: string;
  readonly site: string;
  readonly head: number;
  readonly figure: string;
  readonly value: Real;
  readonly bound: Real;
}

export interface RunInfo {
  readonly id: string;
  readonly model: string;
  readonly started: Real;
  readonly every: number | null;
  readonly records: number;
  readonly first_step: number | null;
  readonly last_step: number | null;
  readonly ended: string | null;
  readonly restarts: readonly number[];
  readonly heads: number;
  readonly sites: readonly SiteOfRun[];
  readonly bounds: readonly Bound[];
  readonly events: readonly Event[];
}

/** values[head][column]; column c covers the records from steps[c] to last_steps[c]. */
export interface RunView {
  readonly figure: string;
  readonly records: number;
  readonly steps: readonly number[];
  readonly last_steps: readonly number[];
  readonly values: readonly (readonly Real[])[];
  readonly loss: readonly Real[];
  readonly lr: readonly Real[];
}

export const getRuns = (signal?: AbortSignal): Promise<RunSummary[]> => get("/api/runs", signal);

export const getRun = (id: string, signal?: AbortSignal): Promise<RunInfo> =>
  get(`/api/runs/${encodeURIComponent(id)}`, signal);

export const getView = (id: string, figure: string, bins: number, signal?: AbortSignal): Promise<RunView> =>
  get(`/api/runs/${encodeURIComponent(id)}/view?figure=${figure}&bins=${bins}`, signal);

/** Calls back whenever the run has grown; returns how to stop. Reconnects while the page is open. */
export function follow(id: string, grown: () => void, live: (on: boolean) => void): () => void {
  let socket: WebSocket | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;
  const connect = (): void => {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    socket = new WebSocket(`${scheme}://${location.host}/api/runs/${encodeURIComponent(id)}/live`);
    socket.onopen = () => live(true);
    socket.onmessage = () => grown();
    socket.onclose = () => {
      live(false);
      if (!stopped) timer = setTimeout(connect, 3000);
    };
  };
  connect();
  return () => {
    stopped = true;
    clearTimeout(timer);
    socket?.close();
  };
}
