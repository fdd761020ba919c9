import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { ACKNOWLEDGE_EVERY, openLine, pause, type LineState } from "./line";

class Wire {
  static readonly OPEN = 1;
  static readonly CLOSED = 3;
  static last: Wire;
  static opened = 0;
  readyState = 1;
  binaryType = "";
  sent: unknown[] = [];
  onopen: () => void = () => undefined;
  onmessage: (event: { data: ArrayBuffer }) => void = () => undefined;
  onclose: (event: { code: number }) => void = () => undefined;
  constructor(readonly url: string) {
    Wire.last = this;
    Wire.opened += 1;
  }
  send(frame: unknown) {
    this.sent.push(frame);
  }
  close() {
    this.readyState = 3;
  }
  breaks(code: number) {
    this.readyState = 3;
    this.onclose({ code });
  }
}

let states: LineState[] = [];
const begin = () => openLine(() => "ws://here", { bytes: () => undefined, state: (state) => states.push(state) });

beforeEach(() => {
  states = [];
  Wire.opened = 0;
  vi.useFakeTimers();
  vi.stubGlobal("WebSocket", Wire);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("the daemon is told at once that bytes will be acknowledged", () => {
  begin();
  Wire.last.onopen();
  expect(Wire.last.sent).toEqual(['{"ack":0}']);
});

test("bytes are acknowledged in portions, each once", () => {
  const line = begin();
  line.shown(ACKNOWLEDGE_EVERY - 1);
  expect(Wire.last.sent).toEqual([]);
  line.shown(11);
  line.shown(5);
  expect(Wire.last.sent).toEqual([`{"ack":${ACKNOWLEDGE_EVERY + 10}}`]);
});

test("a broken line is opened again, later each time", () => {
  begin();
  Wire.last.breaks(1006);
  expect(states).toEqual(["connecting", "lost"]);
  vi.advanceTimersByTime(pause(0));
  expect(Wire.opened).toBe(2);
  Wire.last.breaks(1006);
  vi.advanceTimersByTime(pause(0));
  expect(Wire.opened).toBe(2);
  vi.advanceTimersByTime(pause(1));
  expect(Wire.opened).toBe(3);
  expect(pause(20)).toBe(8000);
});

test("a terminal that ended is not opened again, nor a line that was closed here", () => {
  const line = begin();
  Wire.last.breaks(1000);
  vi.advanceTimersByTime(60_000);
  expect(states.at(-1)).toBe("ended");
  expect(Wire.opened).toBe(1);
  line.close();
  Wire.last.onclose({ code: 1006 });
  vi.advanceTimersByTime(60_000);
  expect(Wire.opened).toBe(1);
});

test("nothing is sent while the line is down", () => {
  const line = begin();
  Wire.last.breaks(1006);
  line.send("x");
  line.resize(80, 24);
  expect(Wire.last.sent).toEqual([]);
});
