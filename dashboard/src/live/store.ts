/** How things stand, kept up to date by the one stream, and read piece by piece so that a change redraws only its card. */
import { useSyncExternalStore } from "react";

import type { BoardSession, Live, Overview, Question, QueueEntry } from "../api/types";

export type Connection = "connecting" | "live" | "lost";

export interface Board {
  connection: Connection;
  /** When the connection was lost; null while it holds, or is being made for the first time. */
  lostAt: string | null;
  /** Everything has arrived once. */
  ready: boolean;
  sessions: ReadonlyMap<string, BoardSession>;
  questions: readonly Question[];
  queue: readonly QueueEntry[];
  overview: Overview | null;
}

const EMPTY: Board = { connection: "connecting", lostAt: null, ready: false, sessions: new Map(), questions: [], queue: [], overview: null };

let board: Board = EMPTY;
const listeners = new Set<() => void>();

/** The board after a frame; a pure function. Sessions that did not change stay the same objects. */
export function applied(before: Board, frame: Live): Board {
  const sessions = new Map(frame.complete ? [] : before.sessions);
  for (const session of frame.sessions) sessions.set(session.id, session);
  return {
    connection: "live",
    lostAt: null,
    ready: before.ready || frame.complete,
    sessions: frame.sessions.length || frame.complete ? sessions : before.sessions,
    questions: frame.questions ?? before.questions,
    queue: frame.queue ?? before.queue,
    overview: frame.overview ?? before.overview,
  };
}

function become(next: Board): void {
  board = next;
  for (const tell of listeners) tell();
}

export const store = {
  read: () => board,
  take: (frame: Live) => become(applied(board, frame)),
  lost: () => {
    if (board.connection !== "lost") become({ ...board, connection: "lost", lostAt: new Date().toISOString() });
  },
  forget: () => become(EMPTY),
  subscribe: (tell: () => void) => {
    listeners.add(tell);
    return () => listeners.delete(tell);
  },
};

/** A piece of the board; `pick` must give the same object as long as nothing changed. */
export function useBoard<T>(pick: (board: Board) => T): T {
  return useSyncExternalStore(store.subscribe, () => pick(board));
}

export const useSession = (id: string) => useBoard((now) => now.sessions.get(id));
