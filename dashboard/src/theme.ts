/** Light, dark, or as the system has it. Set before the first paint. */
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "ao.theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

export function theme(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "system";
}

export function isDark(): boolean {
  return theme() === "dark" || (theme() === "system" && system.matches);
}

function show(): void {
  document.documentElement.dataset["theme"] = isDark() ? "dark" : "light";
  for (const tell of listeners) tell();
}

export function setTheme(next: Theme): void {
  localStorage.setItem(KEY, next);
  show();
}

function subscribe(tell: () => void): () => void {
  listeners.add(tell);
  return () => listeners.delete(tell);
}

export const useTheme = (): Theme => useSyncExternalStore(subscribe, theme);
export const useDark = (): boolean => useSyncExternalStore(subscribe, isDark);

system.addEventListener("change", show);
show();
