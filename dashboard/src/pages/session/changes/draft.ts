/** A review that is being written: kept in the browser until it is given, so that nothing is lost by a reload. */
import { useCallback, useSyncExternalStore } from "react";

import type { LineComment, NewReview } from "../../../api/types";

export interface DraftComment {
  id: string;
  path: string;
  /** Of the new file; null: the file as a whole. */
  line: number | null;
  /** Of the old file, where a removed line is meant. */
  removed: number | null;
  body: string;
}

export interface Draft {
  body: string;
  comments: readonly DraftComment[];
}

const NONE: Draft = { body: "", comments: [] };
const key = (id: string) => `ao.review.${id}`;
const kept = new Map<string, Draft>();
const listeners = new Set<() => void>();

function read(id: string): Draft {
  const known = kept.get(id);
  if (known) return known;
  let draft = NONE;
  try {
    draft = { ...NONE, ...(JSON.parse(localStorage.getItem(key(id)) ?? "{}") as Partial<Draft>) };
  } catch {
    localStorage.removeItem(key(id));
  }
  kept.set(id, draft);
  return draft;
}

function write(id: string, draft: Draft): void {
  kept.set(id, draft);
  if (draft.body || draft.comments.length) localStorage.setItem(key(id), JSON.stringify(draft));
  else localStorage.removeItem(key(id));
  for (const tell of listeners) tell();
}

function subscribe(tell: () => void): () => void {
  listeners.add(tell);
  return () => listeners.delete(tell);
}

export function useDraft(id: string): [Draft, (change: (before: Draft) => Draft) => void] {
  const draft = useSyncExternalStore(subscribe, () => read(id));
  return [draft, useCallback((change) => write(id, change(read(id))), [id])];
}

export const emptied = (): Draft => NONE;
export const written = (before: Draft, comment: DraftComment): Draft => ({
  ...before,
  comments: [...before.comments.filter((one) => one.id !== comment.id), comment],
});
export const without = (before: Draft, id: string): Draft => ({ ...before, comments: before.comments.filter((one) => one.id !== id) });

/** As the daemon takes it: a comment on a removed line is one on its file that says which line. */
export function asReview(draft: Draft, verdict: "approved" | "changes_requested" | "commented"): NewReview {
  return { verdict, body: draft.body.trim(), comments: draft.comments.filter((one) => one.body.trim()).map(asComment) };
}

function asComment({ path, line, removed, body }: DraftComment): LineComment {
  return removed === null ? { path, line, body: body.trim() } : { path, line: null, body: `Removed line ${removed}: ${body.trim()}` };
}
