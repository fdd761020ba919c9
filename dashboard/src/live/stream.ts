/** The one stream of changes. It resumes where it was; what changed also makes open details load anew. */
import type { Live } from "../api/types";
import { store } from "./store";

const QUIET = 40_000;
/** Milliseconds of silence after which the line is taken for dead: the daemon says something every 15 s. */

export interface Stream {
  close(): void;
}

/** Follow the daemon until closed. `touched` hears which sessions had which events. */
export function follow(touched: (sessions: Record<string, string[]>, all: boolean) => void): Stream {
  let source: EventSource | null = null;
  let last = "";
  let timer = 0;
  let retry = 500;
  let closed = false;

  const open = () => {
    source?.close();
    source = new EventSource(last ? `/api/live?after=${last}` : "/api/live");
    source.addEventListener("live", (event: MessageEvent<string>) => {
      last = event.lastEventId;
      retry = 500;
      const frame = JSON.parse(event.data) as Live;
      store.take(frame);
      touched(frame.touched, frame.complete);
      watch();
    });
    source.addEventListener("pulse", watch);
    source.onerror = () => {
      store.connection("lost");
      source?.close();
      clearTimeout(timer);
      if (!closed) timer = window.setTimeout(open, retry);
      retry = Math.min(retry * 2, 3000);
    };
    watch();
  };
  const watch = () => {
    clearTimeout(timer);
    timer = window.setTimeout(open, QUIET);
  };
  /** After sleep or a change of network timers are late: look at once. */
  const wake = () => {
    if (document.visibilityState === "visible" && store.read().connection === "lost") open();
  };
  document.addEventListener("visibilitychange", wake);
  window.addEventListener("online", open);
  open();
  return {
    close: () => {
      closed = true;
      clearTimeout(timer);
      source?.close();
      document.removeEventListener("visibilitychange", wake);
      window.removeEventListener("online", open);
    },
  };
}
