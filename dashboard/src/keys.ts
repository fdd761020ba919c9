/** What the keyboard does, and the palette offers: one list, filled by whatever is on the page. */
import { useEffect, useSyncExternalStore } from "react";

export interface Command {
  /** Unique on the page. */
  id: string;
  label: string;
  group: string;
  /** `n`, `Shift+M`, `g b` (one after the other) or `Mod+K` (⌘ on a Mac, Ctrl elsewhere). */
  keys?: string;
  run: () => void;
}

let commands: readonly Command[] = [];
const listeners = new Set<() => void>();
const mac = /Mac|iPhone|iPad/.test(navigator.platform);

function change(next: readonly Command[]): void {
  commands = next;
  for (const tell of listeners) tell();
}

function subscribe(tell: () => void): () => void {
  listeners.add(tell);
  return () => listeners.delete(tell);
}

export const useAllCommands = (): readonly Command[] => useSyncExternalStore(subscribe, () => commands);

/** Offer these while the component is there. The list must keep its identity (useMemo) until it really changes. */
export function useCommands(mine: readonly Command[]): void {
  useEffect(() => {
    change([...commands, ...mine]);
    return () => change(commands.filter((one) => !mine.includes(one)));
  }, [mine]);
}

/** `Mod+K` as this machine writes it. */
export const shown = (keys: string): string => keys.replace("Mod+", mac ? "⌘" : "Ctrl ");

function pressed(event: KeyboardEvent): string {
  const mod = mac ? event.metaKey : event.ctrlKey;
  const key = event.key.length === 1 ? (mod || event.shiftKey ? event.key.toUpperCase() : event.key) : event.key;
  const shift = event.shiftKey && /^[A-Z]$/.test(key) ? "Shift+" : "";
  return `${mod ? "Mod+" : ""}${shift}${key}`;
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || !!target.closest("input, textarea, select, .xterm, [role=dialog]"));
}

let before = "";
let beforeAt = 0;

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.altKey) return;
  const keys = pressed(event);
  if (typing(event.target) && !keys.startsWith("Mod+")) return;
  const both = before && event.timeStamp - beforeAt < 1200 ? `${before} ${keys}` : "";
  const meant = (keys: string) => commands.findLast((one) => one.keys !== undefined && one.keys === keys);
  const found = (both && meant(both)) || meant(keys);
  before = found ? "" : keys;
  beforeAt = event.timeStamp;
  if (!found) return;
  event.preventDefault();
  found.run();
}

window.addEventListener("keydown", onKey);
