/** A session's story in chains: what was seen, what was decided, what was sent, and that it was taken up, each with what it led to. */
import type { TimelineEntry } from "../../../api/types";

export interface Chain {
  /** The first entry's place in the log: it stays when others join. */
  key: number;
  trigger: string | null;
  entries: TimelineEntry[];
}

const AT_ONCE = 1000;
const STEPS: Partial<Record<TimelineEntry["kind"], number>> = { seen: 0, decided: 1, sent: 2, acknowledged: 3 };

/** Oldest first. An entry joins the chain of its message; else the last one of its trigger, if it is another step of it. */
export function chains(entries: readonly TimelineEntry[]): Chain[] {
  const all: Chain[] = [];
  const byMessage = new Map<string, Chain>();
  const byTrigger = new Map<string, Chain>();
  for (const entry of entries) {
    const sameMessage = entry.message ? byMessage.get(entry.message) : undefined;
    const sameTrigger = entry.trigger ? byTrigger.get(entry.trigger) : undefined;
    const joined = sameMessage ?? (sameTrigger && follows(sameTrigger, entry) ? sameTrigger : undefined);
    const chain = joined ?? { key: entry.seq, trigger: entry.trigger, entries: [] };
    insert(chain.entries, entry);
    chain.trigger ??= entry.trigger;
    if (!joined) all.push(chain);
    if (entry.message) byMessage.set(entry.message, chain);
    if (entry.trigger) byTrigger.set(entry.trigger, chain);
  }
  return all;
}

/** A later step; or, of what was written down at the same moment, one that is not there yet. */
function follows(chain: Chain, entry: TimelineEntry): boolean {
  const step = STEPS[entry.kind];
  const last = chain.entries.at(-1)!;
  const before = STEPS[last.kind];
  if (step === undefined || before === undefined) return false;
  return step > before || (Date.parse(entry.at) - Date.parse(last.at) < AT_ONCE && !chain.entries.some((one) => one.kind === entry.kind));
}

/** By its time; what came at one moment in the order of the steps. */
function insert(entries: TimelineEntry[], entry: TimelineEntry): void {
  const before = (one: TimelineEntry) => Date.parse(entry.at) - Date.parse(one.at) >= AT_ONCE || (STEPS[one.kind] ?? 0) <= (STEPS[entry.kind] ?? 0);
  let place = entries.length;
  while (place > 0 && !before(entries[place - 1]!)) place -= 1;
  entries.splice(place, 0, entry);
}

const LONG = 280;

/** Is it long enough to be folded? */
export const isLong = (detail: string): boolean => detail.length > LONG || detail.split("\n").length > 4;
