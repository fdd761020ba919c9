/** The line to a session's terminal: bytes both ways, opened again when it breaks.
 *
 * The daemon sends only so much more than was acknowledged, so that a terminal that prints without end neither freezes
 * the page nor fills its memory: whoever shows the bytes says how many are done with.
 */
export type LineState = "connecting" | "open" | "lost" | "ended";

export interface Line {
  send(keys: string | Uint8Array): void;
  resize(columns: number, rows: number): void;
  /** So many bytes more have been shown. */
  shown(bytes: number): void;
  close(): void;
}

export interface Listener {
  bytes(data: Uint8Array): void;
  state(state: LineState): void;
}

export const ACKNOWLEDGE_EVERY = 1 << 16;
const FIRST_PAUSE = 400;
const LONGEST_PAUSE = 8000;
const ENDED = 1000;

/** Milliseconds to wait before the nth try after a break. */
export const pause = (tries: number): number => Math.min(FIRST_PAUSE * 2 ** tries, LONGEST_PAUSE);

export function openLine(address: () => string, listener: Listener): Line {
  let socket: WebSocket;
  let tries = 0;
  let timer = 0;
  let unacknowledged = 0;
  let closed = false;
  const encoder = new TextEncoder();

  const tell = (frame: string | Uint8Array<ArrayBuffer>) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(frame);
  };
  const open = () => {
    listener.state("connecting");
    unacknowledged = 0;
    const mine = new WebSocket(address());
    socket = mine;
    mine.binaryType = "arraybuffer";
    mine.onopen = () => {
      tell(JSON.stringify({ ack: 0 }));
      listener.state("open");
    };
    mine.onmessage = (event: MessageEvent<ArrayBuffer | string>) => {
      if (typeof event.data === "string") return;
      tries = 0;
      listener.bytes(new Uint8Array(event.data));
    };
    mine.onclose = (event) => {
      if (closed || mine !== socket) return;
      if (event.code === ENDED) {
        listener.state("ended");
        return;
      }
      listener.state("lost");
      timer = window.setTimeout(open, pause(tries++));
    };
  };
  /** After sleep or a change of network: at once. */
  const wake = () => {
    if (closed || document.visibilityState !== "visible" || socket.readyState !== WebSocket.CLOSED || !timer) return;
    clearTimeout(timer);
    open();
  };
  window.addEventListener("online", wake);
  document.addEventListener("visibilitychange", wake);
  open();

  return {
    send: (keys) => tell(typeof keys === "string" ? encoder.encode(keys) : new Uint8Array(keys)),
    resize: (columns, rows) => tell(JSON.stringify({ resize: [columns, rows] })),
    shown: (bytes) => {
      unacknowledged += bytes;
      if (unacknowledged < ACKNOWLEDGE_EVERY) return;
      tell(JSON.stringify({ ack: unacknowledged }));
      unacknowledged = 0;
    },
    close: () => {
      closed = true;
      clearTimeout(timer);
      window.removeEventListener("online", wake);
      document.removeEventListener("visibilitychange", wake);
      socket.close();
    },
  };
}
