import { expect, test } from "vitest";

import type { BoardSession, PullRequest, QueueEntry } from "../../api/types";
import { check } from "../board/made";
import { deeds } from "./offers";

const pr = (state: PullRequest["state"]): PullRequest => ({
  number: 1,
  url: null,
  state,
  head: "a",
  checks: [check("test", "success")],
  review: "pending",
  mergeable: "yes",
});
const session = (status: string, more: Partial<BoardSession> = {}) => ({ status, pid: 7, pr: null, ...more }) as BoardSession;
const queued = (state: QueueEntry["state"]) => ({ state }) as QueueEntry;

test.each([
  ["a working one without a change", session("working"), undefined, ["stop"]],
  ["an open change", session("review_pending", { pr: pr("open") }), undefined, ["merge", "rerun", "close", "stop"]],
  ["a draft", session("pr_open", { pr: pr("draft") }), undefined, ["merge", "ready", "rerun", "close", "stop"]],
  ["one in the queue", session("merging", { pr: pr("open") }), queued("checking"), ["unqueue", "rerun", "close", "stop"]],
  ["one that lands this moment", session("merging", { pr: pr("open") }), queued("landing"), ["rerun", "close", "stop"]],
  ["a stopped one", session("stopped", { pid: null }), undefined, ["restore"]],
  ["a failed one", session("failed", { pid: null }), undefined, ["restore", "stop"]],
  ["a merged one", session("merged", { pid: null, pr: pr("merged") }), undefined, ["undo"]],
] as const)("%s", (_, given, entry, offered) => expect(deeds(given, entry)).toEqual(offered));
