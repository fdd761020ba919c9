/** Calls for a person where the page is not looked at: a notification for each, once, and their number in the title. */
import { useSyncExternalStore } from "react";
import { navigate } from "wouter/use-browser-location";

import type { BoardSession, Question } from "../api/types";
import { calls } from "../pages/board/arrange";
import { statusWord } from "../pages/board/words";
import { sessionPath } from "../pages/board/paths";
import { store, type Board } from "./store";

const NAME = "Agent Orchestrator";
const KEY = "ao.notify";

export type Notifying = "impossible" | "refused" | "off" | "on";

const listeners = new Set<() => void>();

/** Does this browser tell of calls? */
export function notifying(): Notifying {
  if (typeof Notification === "undefined" || !isSecureContext) return "impossible";
  if (Notification.permission === "denied") return "refused";
  return Notification.permission === "granted" && localStorage.getItem(KEY) !== "off" ? "on" : "off";
}

export function useNotifying(): Notifying {
  return useSyncExternalStore((tell) => {
    listeners.add(tell);
    return () => listeners.delete(tell);
  }, notifying);
}

/** Ask the person's browser; only ever called by a press of a button. */
export async function askToNotify(): Promise<Notifying> {
  if ((await Notification.requestPermission()) === "granted") localStorage.setItem(KEY, "on");
  for (const tell of listeners) tell();
  return notifying();
}

export function stopNotifying(): void {
  localStorage.setItem(KEY, "off");
  for (const tell of listeners) tell();
}

export interface Call {
  session: BoardSession;
  question: Question | null;
}

/** What a notification says. */
export function wording({ session, question }: Call): { title: string; body: string } {
  const name = session.title || session.name;
  if (!question) return { title: `${statusWord(session.status)}: ${name}`, body: session.why ?? session.id };
  const says = { question: "asks", permission: "wants permission", message: "has a message that waits for your word", offer: "has an action for you" };
  return { title: `${name} ${says[question.kind]}`, body: question.permission?.command ?? question.text };
}

/** Those that were not there before. */
export function fresh(now: ReadonlyMap<string, Call>, told: ReadonlySet<string>): [string, Call][] {
  return [...now].filter(([key]) => !told.has(key));
}

/** How many sessions call; a session that asks twice is one. */
export const calling = (now: ReadonlyMap<string, Call>): number => new Set([...now.values()].map(({ session }) => session.id)).size;

/** The same, of the board as it stands. */
export const callers = (board: Board): number => calling(calls(board.sessions.values(), board.questions));

export const titled = (count: number, page: string): string => `${count ? `(${count}) ` : ""}${page}`;

/** Follow the board until the answer is called. What is there at first is on the page already and is not told. */
export function announce(): () => void {
  let told: ReadonlySet<string> = new Set();
  let begun = false;
  let before = store.read();
  const look = () => {
    const board = store.read();
    if (board.sessions === before.sessions && board.questions === before.questions && begun) return;
    before = board;
    if (!board.ready) return;
    const now = calls(board.sessions.values(), board.questions);
    document.title = titled(calling(now), NAME);
    if (begun && document.visibilityState === "hidden" && notifying() === "on") {
      for (const [key, call] of fresh(now, told)) void show(key, call);
    }
    told = new Set(now.keys());
    begun = true;
  };
  look();
  const forget = store.subscribe(look);
  return () => {
    forget();
    document.title = NAME;
  };
}

/** By the service worker where there is one (phones know no other way); several open pages show it once, by its tag. */
async function show(tag: string, call: Call): Promise<void> {
  const { title, body } = wording(call);
  const to = sessionPath(call.session.id);
  const worker = await navigator.serviceWorker?.getRegistration();
  if (worker) return worker.showNotification(title, { body, tag, icon: "/icon.svg", data: { to } });
  const shown = new Notification(title, { body, tag, icon: "/icon.svg" });
  shown.onclick = () => {
    window.focus();
    navigate(to);
    shown.close();
  };
}

/** The worker that shows notifications and leads back to the page when one is pressed. It keeps no copy of anything. */
export function registerWorker(): void {
  if (!isSecureContext || !navigator.serviceWorker) return;
  navigator.serviceWorker.register("/sw.js").catch(() => undefined);
  navigator.serviceWorker.addEventListener("message", (event: MessageEvent<{ to?: string }>) => {
    if (event.data.to?.startsWith("/")) navigate(event.data.to);
  });
}
