/** The one stream of changes. It resumes where it was; what changed also makes open details load anew. */
import { api } from "../api/client";
import { withPage } from "../api/page";
import type { Live, Me } from "../api/types";
import { store } from "./store";

const QUIET = 25_000;
/** Milliseconds of silence after which the line is taken for dead: the daemon says something every 15 s. */
const LOOK = 2_000;
/** Milliseconds between looks at the clock. It is asked, and not a timer: timers stand still while the machine sleeps. */

export interface Stream {
  close(): void;
}

let current: (() => void) | null = null;

/** Do not wait for the next attempt. */
export function reconnect(): void {
  current?.();
}

/** Follow the daemon until closed. `touched` hears which sessions had which events. */
export function follow(touched: (sessions: Record<string, string[]>, all: boolean) => void): Stream {
  let source: EventSource | null = null;
  let last = "";
  let retrying = 0;
  let retry = 500;
  let heard = Date.now();

  const open = () => {
    clearTimeout(retrying);
    source?.close();
    heard = Date.now();
    source = new EventSource(withPage(last ? `/api/live?after=${last}` : "/api/live"));
    source.addEventListener("live", (event: MessageEvent<string>) => {
      heard = Date.now();
      last = event.lastEventId;
      retry = 500;
      const frame = JSON.parse(event.data) as Live;
      store.take(frame);
      touched(frame.touched, frame.complete);
    });
    source.addEventListener("pulse", () => (heard = Date.now()));
    source.onerror = () => {
      store.lost();
      source?.close();
      clearTimeout(retrying);
      retrying = window.setTimeout(open, retry);
      retry = Math.min(retry * 2, 3000);
      /** It may be that the daemon does not know this browser any more; then the sign-in is shown. */
      void api.get<Me>("/api/me").catch(() => undefined);
    };
  };
  /** Silence that lasted too long, by the clock on the wall: the machine slept, or the network went away. */
  const look = () => {
    if (Date.now() - heard < QUIET) return;
    store.lost();
    open();
  };
  const wake = () => {
    if (document.visibilityState !== "visible") return;
    if (store.read().connection === "lost") open();
    else look();
  };
  const looking = window.setInterval(look, LOOK);
  document.addEventListener("visibilitychange", wake);
  document.addEventListener("resume", wake);
  window.addEventListener("online", open);
  window.addEventListener("offline", store.lost);
  current = open;
  open();
  return {
    close: () => {
      current = null;
      clearTimeout(retrying);
      clearInterval(looking);
      source?.close();
      document.removeEventListener("visibilitychange", wake);
      document.removeEventListener("resume", wake);
      window.removeEventListener("online", open);
      window.removeEventListener("offline", store.lost);
    },
  };
}
