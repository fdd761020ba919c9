import type { Event, QueueEntry } from "../../api/types";

/** One queue for each base branch, in order. */
export function byBase(entries: readonly QueueEntry[]): [string, QueueEntry[]][] {
  const lanes = new Map<string, QueueEntry[]>();
  for (const entry of [...entries].sort((a, b) => a.position - b.position)) {
    lanes.set(entry.base, [...(lanes.get(entry.base) ?? []), entry]);
  }
  return [...lanes].sort(([a], [b]) => a.localeCompare(b));
}

/** What is being tried with a change, in words. */
export function trying(entry: QueueEntry): string {
  const on = entry.ahead.length ? `on top of ${entry.ahead.join(", ")}` : `on top of ${entry.base}`;
  const tree = entry.tree ? `, as tree ${entry.tree.slice(0, 8)}` : "";
  const passed = entry.passedBy.length ? `; ${entry.passedBy.join(", ")} ${entry.passedBy.length > 1 ? "go" : "goes"} before it` : "";
  const verb = { queued: "will be checked", checking: "is being checked", green: "passed", landing: "is landing", waiting: "is to land" }[entry.state];
  return `${verb} ${on}${tree}${passed}`;
}

export interface Turned {
  seq: number;
  session: string;
  reason: string;
  cause: string;
  at: string;
}

/** Landings that failed, newest first, the last one of each session. */
export function droppedOf(events: readonly Event[]): Turned[] {
  const seen = new Set<string>();
  return [...events].reverse().flatMap((event) => {
    if (!event.session || seen.has(event.session)) return [];
    seen.add(event.session);
    const { reason, cause } = event.data as { reason?: string; cause?: string };
    return [{ seq: event.seq, session: event.session, reason: reason ?? "", cause: cause ?? "", at: event.time }];
  });
}
