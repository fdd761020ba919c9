/** What was just asked for and has not shown on the stream yet: "merging…" on a card, a reply that is on its way. */
import { useSyncExternalStore } from "react";

import { attempt } from "../../ui/toast";

const PATIENCE = 5000;
/** Milliseconds after the daemon's yes in which the stream is expected to say so too. */

interface Doing {
  word: string;
  /** How things stood when it was asked for; once they stand otherwise, it is over. */
  stood: string;
}

export interface Sent {
  text: string;
  /** Null until the daemon has accepted it. */
  message: string | null;
  state: string;
}

let doing: ReadonlyMap<string, Doing> = new Map();
let sent: ReadonlyMap<string, Sent> = new Map();
const listeners = new Set<() => void>();

function tell(): void {
  for (const each of listeners) each();
}

function subscribe(each: () => void): () => void {
  listeners.add(each);
  return () => listeners.delete(each);
}

function put<T>(map: ReadonlyMap<string, T>, key: string, value: T | null): ReadonlyMap<string, T> {
  const next = new Map(map);
  if (value === null) next.delete(key);
  else next.set(key, value);
  return next;
}

/** The word for what is under way with this, as long as it stands as it stood. */
export function useDoing(key: string, stands: string): string | null {
  return useSyncExternalStore(subscribe, () => {
    const one = doing.get(key);
    return one?.stood === stands ? one.word : null;
  });
}

export const useSent = (session: string): Sent | undefined => useSyncExternalStore(subscribe, () => sent.get(session));

/** Ask for something once: the word shows at once, an error takes it back and is told. */
export async function act(key: string, stood: string, word: string, action: () => Promise<unknown>): Promise<boolean> {
  if (doing.get(key)?.stood === stood) return false;
  const mine = { word, stood };
  const end = () => {
    if (doing.get(key) !== mine) return;
    doing = put(doing, key, null);
    tell();
  };
  doing = put(doing, key, mine);
  tell();
  const done = await attempt(action);
  if (done) setTimeout(end, PATIENCE);
  else end();
  return done;
}

/** Send words to a session: shown as queued at once; taken back if they were refused. */
export async function say(session: string, text: string, action: () => Promise<{ messageId: string | null; state: string }>): Promise<boolean> {
  sent = put<Sent>(sent, session, { text, message: null, state: "queued" });
  tell();
  const done = await attempt(async () => {
    const answer = await action();
    sent = put<Sent>(sent, session, { text, message: answer.messageId, state: answer.state });
  });
  if (!done) sent = put(sent, session, null);
  tell();
  return done;
}

/** They are where they should be, and need not be shown any more. */
export function forgetSent(session: string, text: string): void {
  if (sent.get(session)?.text !== text) return;
  sent = put(sent, session, null);
  tell();
}
