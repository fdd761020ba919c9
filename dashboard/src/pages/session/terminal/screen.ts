/** An xterm.js terminal on a line: what it prints is shown, what is typed is sent, and no more is taken than can be shown. */
import "@xterm/xterm/css/xterm.css";

import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { WebglAddon } from "@xterm/addon-webgl";
import { Terminal } from "@xterm/xterm";

import { arrows, withControl } from "./keys";
import { openLine, type Line, type LineState } from "./line";
import { foundColours, palette } from "./palette";

export interface Wishes {
  address: (columns: number, rows: number) => string;
  dark: boolean;
  readOnly: boolean;
  onState: (state: LineState) => void;
  /** An address was clicked, under this text. */
  onLink: (uri: string, shown: string) => void;
  onFind: () => void;
  /** Somebody scrolls back in a program that keeps no past here. */
  onPast: () => void;
  onFound: (index: number, count: number) => void;
  /** The Ctrl of the key bar was used up. */
  onControlUsed: () => void;
}

export interface Screen {
  press(bytes: string): void;
  holdControl(held: boolean): void;
  find(text: string, back: boolean): void;
  endFind(): void;
  /** What is selected, else all that is on the screen. */
  text(): string;
  paint(dark: boolean): void;
  focus(): void;
  close(): void;
}

const FONT = '"SF Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const SETTLED = 60;
/** Milliseconds that a size must stay before the program is told. */

export function openScreen(place: HTMLElement, wishes: Wishes): Screen {
  const narrow = window.matchMedia("(max-width: 640px)").matches;
  const terminal = new Terminal({
    allowProposedApi: true,
    cursorBlink: false,
    cursorInactiveStyle: "outline",
    disableStdin: wishes.readOnly,
    fontFamily: FONT,
    fontSize: narrow ? 11 : 13,
    lineHeight: 1.2,
    linkHandler: { activate: (_, uri, range) => wishes.onLink(uri, shownAt(terminal, range)), allowNonHttpProtocols: true },
    macOptionIsMeta: true,
    minimumContrastRatio: 4.5,
    scrollback: 5000,
    theme: palette(wishes.dark),
  });
  const fit = new FitAddon();
  const search = new SearchAddon();
  terminal.loadAddon(fit);
  terminal.loadAddon(search);
  terminal.loadAddon(new WebLinksAddon((_, uri) => wishes.onLink(uri, uri)));
  terminal.open(place);
  accelerate(terminal);
  fit.fit();

  let dark = wishes.dark;
  let control = false;
  let fresh = true;
  const line: Line = openLine(() => wishes.address(terminal.cols, terminal.rows), {
    bytes: (data) => {
      if (fresh) terminal.reset();
      fresh = false;
      terminal.write(data, () => line.shown(data.length));
    },
    state: (state) => {
      if (state === "connecting") fresh = true;
      wishes.onState(state);
    },
  });
  const type = (keys: string) => {
    if (wishes.readOnly) return;
    line.send(control ? withControl(keys) : keys);
    if (control) {
      control = false;
      wishes.onControlUsed();
    }
  };
  terminal.onData(type);
  terminal.onBinary((keys) => !wishes.readOnly && line.send(Uint8Array.from(keys, (letter) => letter.charCodeAt(0))));
  search.onDidChangeResults(({ resultIndex, resultCount }) => wishes.onFound(resultIndex, resultCount));
  terminal.attachCustomKeyEventHandler((event) => ours(event, terminal, wishes.onFind));
  terminal.attachCustomWheelEventHandler((event) => {
    if (terminal.buffer.active.type === "normal" || terminal.modes.mouseTrackingMode !== "none") return true;
    if (event.deltaY < 0) wishes.onPast();
    return false;
  });
  const stopTouch = scrollByTouch(place, terminal, wishes.onPast);

  let timer = 0;
  const resized = new ResizeObserver(() => {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      if (place.clientWidth && place.clientHeight) fit.fit();
    }, SETTLED);
  });
  resized.observe(place);
  terminal.onResize(({ cols, rows }) => line.resize(cols, rows));

  return {
    press: (bytes) => type(arrows(bytes, terminal.modes.applicationCursorKeysMode)),
    holdControl: (held) => (control = held),
    find: (text, back) => {
      const options = { decorations: foundColours(dark) };
      if (back) search.findPrevious(text, options);
      else search.findNext(text, { ...options, incremental: true });
    },
    endFind: () => search.clearDecorations(),
    text: () => terminal.getSelection() || shownText(terminal),
    paint: (next) => {
      dark = next;
      terminal.options.theme = palette(next);
    },
    focus: () => terminal.focus(),
    close: () => {
      clearTimeout(timer);
      resized.disconnect();
      stopTouch();
      line.close();
      terminal.dispose();
    },
  };
}

/** Draw by the graphics card where there is a real one; the page's own drawing does it too, and spares a phone's battery. */
function accelerate(terminal: Terminal): void {
  if (!window.matchMedia("(pointer: fine)").matches || !hasGraphicsCard()) return;
  try {
    const webgl = new WebglAddon();
    webgl.onContextLoss(() => webgl.dispose());
    terminal.loadAddon(webgl);
  } catch {
    return;
  }
}

const COMPUTED = /swiftshader|llvmpipe|softpipe|software|basic render/i;

/** A card that is only computed is slower than none. */
function hasGraphicsCard(): boolean {
  const trial = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
  if (!trial) return false;
  const known = trial.getExtension("WEBGL_debug_renderer_info");
  const name = String(trial.getParameter(known ? known.UNMASKED_RENDERER_WEBGL : trial.RENDERER));
  trial.getExtension("WEBGL_lose_context")?.loseContext();
  return !COMPUTED.test(name);
}

/** Keys that the page keeps: find, copy, and the way out for those who have no mouse. */
function ours(event: KeyboardEvent, terminal: Terminal, find: () => void): boolean {
  if (event.type !== "keydown") return true;
  const mod = event.ctrlKey || event.metaKey;
  if (mod && !event.shiftKey && event.key.toLowerCase() === "f") {
    event.preventDefault();
    find();
    return false;
  }
  if (mod && event.key.toLowerCase() === "k" && !event.shiftKey) return false;
  if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "c") {
    event.preventDefault();
    void navigator.clipboard.writeText(terminal.getSelection());
    return false;
  }
  if (event.shiftKey && event.key === "Escape") {
    terminal.blur();
    document.getElementById("terminal-tools")?.querySelector("button")?.focus();
    return false;
  }
  return true;
}

function shownAt(terminal: Terminal, range: { start: { x: number; y: number }; end: { x: number; y: number } }): string {
  if (range.start.y !== range.end.y) return "";
  return terminal.buffer.active.getLine(range.start.y - 1)?.translateToString(true, range.start.x - 1, range.end.x) ?? "";
}

function shownText(terminal: Terminal): string {
  const buffer = terminal.buffer.active;
  const lines = Array.from({ length: terminal.rows }, (_, row) => buffer.getLine(buffer.viewportY + row)?.translateToString(true) ?? "");
  return lines.join("\n").trimEnd();
}

/** A finger moves the past up and down. */
function scrollByTouch(place: HTMLElement, terminal: Terminal, past: () => void): () => void {
  let last: number | null = null;
  let rest = 0;
  const start = (event: TouchEvent) => {
    last = event.touches.length === 1 ? event.touches[0]!.clientY : null;
    rest = 0;
  };
  const move = (event: TouchEvent) => {
    if (last === null || event.touches.length !== 1) return;
    const now = event.touches[0]!.clientY;
    rest += last - now;
    last = now;
    const height = place.clientHeight / terminal.rows;
    const lines = Math.trunc(rest / height);
    if (!lines) return;
    event.preventDefault();
    event.stopPropagation();
    rest -= lines * height;
    if (terminal.buffer.active.type === "normal") terminal.scrollLines(lines);
    else if (lines < -1) past();
  };
  place.addEventListener("touchstart", start, { capture: true, passive: true });
  place.addEventListener("touchmove", move, { capture: true, passive: false });
  return () => {
    place.removeEventListener("touchstart", start, { capture: true });
    place.removeEventListener("touchmove", move, { capture: true });
  };
}
