/** What Watch asks of the server. */
import { get, type Damaged, type RunInfo, type RunSummary, type RunView } from "$lib/api";
import { PROTOCOL, secret } from "$lib/tab";

export const getRuns = (signal?: AbortSignal): Promise<RunSummary[]> => get("/api/runs", signal);

export const getDamaged = (signal?: AbortSignal): Promise<Damaged[]> => get("/api/damaged/runs", signal);

export const getRun = (id: string, signal?: AbortSignal): Promise<RunInfo> =>
  get(`/api/runs/${encodeURIComponent(id)}`, signal);

export const getView = (id: string, figure: string, bins: number, signal?: AbortSignal): Promise<RunView> =>
  get(`/api/runs/${encodeURIComponent(id)}/view?figure=${figure}&bins=${bins}`, signal);

/** Calls back whenever the run has grown; returns how to stop. Reconnects while the page is open. */
export function follow(id: string, grown: () => void, live: (on: boolean) => void): () => void {
  let socket: WebSocket | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;
  const connect = async (): Promise<void> => {
    const own = await secret();
    if (stopped) return;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    socket = new WebSocket(`${scheme}://${location.host}/api/runs/${encodeURIComponent(id)}/live`, [PROTOCOL, own]);
    socket.onopen = () => live(true);
    socket.onmessage = () => grown();
    socket.onclose = () => {
      live(false);
      if (!stopped) timer = setTimeout(() => void connect(), 3000);
    };
  };
  void connect();
  return () => {
    stopped = true;
    clearTimeout(timer);
    socket?.close();
  };
}
