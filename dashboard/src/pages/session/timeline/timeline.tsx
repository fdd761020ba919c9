/** What happened to a session: newest at the bottom, what belongs together under one line. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";

import type { Timeline as Story, TimelineEntry } from "../../../api/types";
import { me } from "../../../auth";
import { cx } from "../../../ui/cx";
import { Empty } from "../../../ui/empty";
import { clock, spoken } from "../../../ui/time";
import { chains, isLong, type Chain } from "./chains";

const KINDS: Record<TimelineEntry["kind"], { word: string; dot: string }> = {
  seen: { word: "Seen", dot: "bg-work" },
  decided: { word: "Decided", dot: "bg-review" },
  sent: { word: "Sent", dot: "bg-accent" },
  acknowledged: { word: "Acknowledged", dot: "bg-ready" },
  said: { word: "Agent", dot: "bg-needs" },
  did: { word: "You", dot: "bg-line-strong" },
};
const MOST = 200;
const NEAR = 80;
/** So many pixels from the bottom count as being there. */

export function TimelineView({ story, className }: { story: Story; className?: string }) {
  const [all, setAll] = useState(false);
  const every = useMemo(() => chains(story.entries), [story.entries]);
  const shown = all ? every : every.slice(-MOST);
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown]);
  useEffect(() => {
    const mine = box.current;
    if (!mine) return;
    const look = () => (atEnd.current = mine.scrollHeight - mine.scrollTop - mine.clientHeight < NEAR);
    mine.addEventListener("scroll", look, { passive: true });
    return () => mine.removeEventListener("scroll", look);
  }, []);
  return (
    <div ref={box} tabIndex={0} role="region" aria-label="Timeline" className={cx("min-h-0 overflow-y-auto", className)}>
      {every.length === 0 && <Empty title="Nothing has happened yet" />}
      {shown.length < every.length && (
        <button type="button" onClick={() => setAll(true)} className="min-h-8 w-full rounded text-xs text-ink-soft hover:bg-raised">
          Show {every.length - shown.length} earlier
        </button>
      )}
      <ol className="flex flex-col">
        {shown.map((chain, index) => (
          <Linked key={chain.key} chain={chain} newDay={index === 0 || day(chain) !== day(shown[index - 1]!)} />
        ))}
      </ol>
    </div>
  );
}

const day = (chain: Chain): string => new Date(chain.entries[0]!.at).toDateString();

function Linked({ chain, newDay }: { chain: Chain; newDay: boolean }) {
  return (
    <li>
      {newDay && (
        <p className="sticky top-0 z-1 bg-surface/95 py-1 text-xs font-medium text-ink-faint">
          {new Date(chain.entries[0]!.at).toLocaleDateString([], { weekday: "long", day: "numeric", month: "long" })}
        </p>
      )}
      <ol className={cx("relative my-1 flex flex-col", chain.entries.length > 1 && "rounded-md bg-raised py-1")} aria-label={chain.entries.length > 1 ? (chain.trigger ?? "A message") : undefined}>
        {chain.entries.map((entry, index) => (
          <Happened key={entry.seq} entry={entry} linked={index < chain.entries.length - 1} />
        ))}
      </ol>
    </li>
  );
}

function Happened({ entry, linked }: { entry: TimelineEntry; linked: boolean }) {
  const kind = KINDS[entry.kind];
  return (
    <li className="relative grid grid-cols-[0.75rem_1fr_auto] gap-x-2 px-1.5 py-1">
      {linked && <span aria-hidden className="absolute top-4 bottom-[-0.5rem] left-[calc(0.375rem+0.34rem)] w-px bg-line-strong/50" />}
      <span aria-hidden className={cx("relative mt-1 size-2 justify-self-center rounded-full", kind.dot)} />
      <div className="min-w-0">
        <p className="text-sm leading-snug break-words">
          <span className="font-medium text-ink-faint">{entry.kind === "did" && entry.by !== "person" && entry.by !== me.read()?.name ? "Did" : kind.word} · </span>
          {spoken(entry.title)}
        </p>
        {entry.detail && !entry.title.endsWith(entry.detail) && <Detail text={entry.detail} />}
      </div>
      <time dateTime={entry.at} title={`${new Date(entry.at).toLocaleString()}, ${entry.by}`} className="text-xs leading-snug whitespace-nowrap text-ink-faint tabular-nums">
        {clock(entry.at)}
      </time>
    </li>
  );
}

function Detail({ text }: { text: string }) {
  const [open, setOpen] = useState(false);
  const long = isLong(text);
  return (
    <div className="mt-0.5">
      <p className={cx("text-xs leading-relaxed break-words whitespace-pre-wrap text-ink-soft", long && !open && "line-clamp-3")}>{spoken(text)}</p>
      {long && (
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="min-h-6 rounded text-xs text-accent hover:underline">
          {open ? "Less" : "More"}
        </button>
      )}
    </div>
  );
}
