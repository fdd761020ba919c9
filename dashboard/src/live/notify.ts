/** Calls for a person where the page is not looked at: a notification for each, once, and their number in the title. */
import { useEffect, useSyncExternalStore } from "react";
import { navigate } from "wouter/use-browser-location";

import type { BoardSession, Question } from "../api/types";
import { calls } from "../pages/board/arrange";
import { statusWord } from "../pages/board/words";
import { sessionPath } from "../pages/board/paths";
import { store, type Board } from "./store";

export const NAME = "Agent Orchestrator";
const KEY = "ao.notify";

export type Notifying = "impossible" | "refused" | "off" | "on";

const listeners = new Set<() => void>();

/** Does this browser tell of calls? */
export function notifying(): Notifying {
  if (typeof Notification === "undefined" || !isSecureContext) return "impossible";
  if (Notification.permission === "denied") return "refused";
  return Notification.permission === "granted" && localStorage.getItem(KEY) !== "off" ? "on" : "off";
}

let known: Notifying | null = null;

function watch(tell: () => void): () => void {
  const look = () => {
    known = notifying();
    tell();
  };
  known = notifying();
  listeners.add(look);
  window.addEventListener("focus", look);
  return () => {
    listeners.delete(look);
    window.removeEventListener("focus", look);
  };
}

/** The same, for what is drawn often: the page stands still until the browser answers, so it is asked only when that may have changed. */
export const useNotifying = (): Notifying => useSyncExternalStore(watch, () => (known ??= notifying()));

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

let page = NAME;
let count = 0;

function entitle(): void {
  const title = titled(count, page);
  if (document.title !== title) document.title = title;
}

/** The window is called by what this page shows, as long as it does; the number of calls stays in front. */
export function usePageTitle(about: string | undefined): void {
  useEffect(() => {
    page = about ? `${about} · ${NAME}` : NAME;
    entitle();
    return () => {
      page = NAME;
      entitle();
    };
  }, [about]);
}

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
    count = calling(now);
    entitle();
    if (begun && document.visibilityState === "hidden" && notifying() === "on") {
      for (const [key, call] of fresh(now, told)) void show(key, wording(call), sessionPath(call.session.id));
    }
    told = new Set(now.keys());
    begun = true;
  };
  look();
  const forget = store.subscribe(look);
  return () => {
    forget();
    count = 0;
    entitle();
  };
}

/** By the service worker where there is one (phones know no other way); several open pages show it once, by its tag. */
async function show(tag: string, { title, body }: { title: string; body: string }, to: string): Promise<void> {
  const worker = await navigator.serviceWorker?.getRegistration();
  if (worker) return worker.showNotification(title, { body, tag, icon: "/icon.svg", data: { to } });
  const shown = new Notification(title, { body, tag, icon: "/icon.svg" });
  shown.onclick = () => {
    window.focus();
    navigate(to);
    shown.close();
  };
}

/** So that a person sees what one looks like, and whether the system lets it through. */
export const tryNotifying = (): Promise<void> => show("test", { title: "This is how you will be told", body: "Press it to come back to the board." }, "/");

/** The worker that shows notifications and leads back to the page when one is pressed. It keeps no copy of anything. */
export function registerWorker(): void {
  if (!isSecureContext || !navigator.serviceWorker) return;
  navigator.serviceWorker.register("/sw.js").catch(() => undefined);
  navigator.serviceWorker.addEventListener("message", (event: MessageEvent<{ to?: string }>) => {
    if (event.data.to?.startsWith("/")) navigate(event.data.to);
  });
}
