/** Where what was said about a change stands in it. Pure. */
import type { Thread } from "../../../api/types";
import type { DraftComment } from "./draft";

export type Note = { kind: "thread"; thread: Thread } | { kind: "draft"; comment: DraftComment };

export interface Placed {
  side: "additions" | "deletions";
  lineNumber: number;
  metadata: Note[];
}

export interface Lines {
  additions: ReadonlySet<number>;
  deletions: ReadonlySet<number>;
}

/** The lines that a file's part of a patch shows, on either side. */
export function linesOf(patch: string): Lines {
  const additions = new Set<number>();
  const deletions = new Set<number>();
  let next = 0;
  let old = 0;
  let inside = false;
  for (const line of patch.split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    if (hunk) {
      old = Number(hunk[1]);
      next = Number(hunk[2]);
      inside = true;
    } else if (!inside) continue;
    else if (line.startsWith("+")) additions.add(next++);
    else if (line.startsWith("-")) deletions.add(old++);
    else if (line.startsWith(" ")) {
      additions.add(next++);
      deletions.add(old++);
    }
  }
  return { additions, deletions };
}

/** Notes by line; those whose line the patch does not show stand above the file. */
export function placed(path: string, lines: Lines, threads: readonly Thread[], drafts: readonly DraftComment[]): { inside: Placed[]; above: Note[] } {
  const inside = new Map<string, Placed>();
  const above: Note[] = [];
  const put = (note: Note, side: Placed["side"], line: number | null) => {
    if (line === null || !lines[side].has(line)) {
      above.push(note);
      return;
    }
    const key = `${side} ${line}`;
    const there = inside.get(key) ?? { side, lineNumber: line, metadata: [] };
    there.metadata.push(note);
    inside.set(key, there);
  };
  for (const thread of threads) if (thread.path === path) put({ kind: "thread", thread }, "additions", thread.line);
  for (const comment of drafts) {
    if (comment.path !== path) continue;
    if (comment.removed !== null) put({ kind: "draft", comment }, "deletions", comment.removed);
    else put({ kind: "draft", comment }, "additions", comment.line);
  }
  return { inside: [...inside.values()], above };
}
