/** What a person may do with a session as it stands, besides the one next thing. Pure. */
import type { BoardSession, QueueEntry } from "../../api/types";

export type Deed = "merge" | "unqueue" | "ready" | "rerun" | "restore" | "undo" | "close" | "stop";

export const DEEDS: Record<Deed, { label: string; done: string; danger?: boolean }> = {
  merge: { label: "Merge", done: "It lands when its checks have passed" },
  unqueue: { label: "Take out of the merge queue", done: "Taken out of the queue" },
  ready: { label: "Mark ready for review", done: "It is no draft any more" },
  rerun: { label: "Run the checks again", done: "The checks run" },
  restore: { label: "Restore", done: "It is brought back" },
  undo: { label: "Undo the landing", done: "A change that takes it back was made" },
  close: { label: "Close the change", done: "Closed; branch and workspace stay", danger: true },
  stop: { label: "Stop", done: "Stopped", danger: true },
};

export function deeds(session: BoardSession, queued: QueueEntry | undefined): Deed[] {
  const { pr, status } = session;
  const over = status === "merged" || status === "stopped" || status === "closed";
  const open = pr?.state === "open" || pr?.state === "draft";
  const gone = session.pid === null && ["stopped", "failed", "interrupted", "exited", "closed"].includes(status);
  const can: [Deed, boolean][] = [
    ["merge", open && !queued && status !== "merging"],
    ["unqueue", queued !== undefined && queued.state !== "landing"],
    ["ready", pr?.state === "draft"],
    ["rerun", open && pr.checks.length > 0],
    ["restore", gone],
    ["undo", status === "merged"],
    ["close", open],
    ["stop", !over],
  ];
  return can.filter(([, holds]) => holds).map(([deed]) => deed);
}
