/** Sessions and commands, by a few letters. */
import { Dialog as Base } from "@base-ui/react/dialog";
import { useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";

import { useAllCommands } from "../keys";
import { useBoard } from "../live/store";
import { cx } from "../ui/cx";
import { found, type Entry } from "./find";
import { Keys } from "./help";

const MOST = 50;

export function Palette({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Base.Root open={open} onOpenChange={(now) => !now && onClose()}>
      <Base.Portal>
        <Base.Backdrop className="fixed inset-0 z-40 bg-black/40" />
        <Base.Popup
          aria-label="Find a session or a command"
          className="fixed top-[10vh] left-1/2 z-40 w-[calc(100vw-1.5rem)] max-w-xl -translate-x-1/2 overflow-hidden rounded-xl border border-line bg-surface shadow-card"
        >
          <Finder onClose={onClose} />
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}

function Finder({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const entries = found(useEntries(), text).slice(0, MOST);
  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    entry.run();
  };
  const move = (to: number) => {
    const next = Math.max(0, Math.min(entries.length - 1, to));
    setChosen(next);
    list.current?.children[next]?.scrollIntoView({ block: "nearest" });
  };
  return (
    <>
      <input
        autoFocus
        role="combobox"
        aria-label="Find a session or a command"
        aria-expanded
        aria-controls="found"
        aria-activedescendant={entries[chosen] ? `found-${chosen}` : undefined}
        placeholder="Find a session or a command"
        className="w-full border-b border-line bg-transparent px-4 py-3 outline-none"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") move(chosen + 1);
          else if (event.key === "ArrowUp") move(chosen - 1);
          else if (event.key === "Enter") run(entries[chosen]);
          else return;
          event.preventDefault();
        }}
      />
      <ul ref={list} id="found" role="listbox" aria-label="Found" className="max-h-[55vh] overflow-auto p-1.5">
        {entries.map((entry, index) => (
          <li
            key={entry.id}
            id={`found-${index}`}
            role="option"
            aria-selected={index === chosen}
            onPointerMove={() => setChosen(index)}
            onClick={() => run(entry)}
            className={cx("flex min-h-9 cursor-pointer items-center gap-3 rounded-md px-2.5", index === chosen && "bg-accent-soft")}
          >
            <span className="truncate">{entry.label}</span>
            <span className="ml-auto shrink-0 text-xs text-ink-soft">{entry.keys ? <Keys keys={entry.keys} /> : entry.hint}</span>
          </li>
        ))}
        {entries.length === 0 && <li className="px-2.5 py-3 text-ink-soft">Nothing is called that</li>}
      </ul>
    </>
  );
}

function useEntries(): Entry[] {
  const commands = useAllCommands();
  const sessions = useBoard((board) => board.sessions);
  const [, go] = useLocation();
  return useMemo(
    () => [
      ...[...sessions.values()].map((session) => ({
        id: session.id,
        label: session.title || session.name,
        hint: `${session.id} · ${session.column}`,
        run: () => go(`/sessions/${encodeURIComponent(session.id)}`),
      })),
      ...commands.map((command) => ({ id: `command ${command.id}`, label: command.label, hint: command.group, keys: command.keys, run: command.run })),
    ],
    [commands, sessions, go],
  );
}
