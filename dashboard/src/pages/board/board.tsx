/** The board: what needs you first, then what the agents do, what is reviewed, what may land, what has landed. */
import { useCallback, useMemo, useRef, useState } from "react";
import { useSearchParams } from "wouter";
import { navigate } from "wouter/use-browser-location";

import { may } from "../../auth";
import { useCommands, type Command } from "../../keys";
import { useBoard } from "../../live/store";
import { Loading } from "../../ui/loading";
import { arrange, COLUMNS, coordinators, questionsOf, type Arranged, type Card, type ColumnName } from "./arrange";
import { Column, drawn } from "./column";
import { useBoardCommands } from "./commands";
import { Coordinators } from "./coordinators";
import { fromQuery, intoQuery, narrows, type Filter } from "./filter";
import { Filters } from "./filters";
import { FirstRun } from "./first_run";
import { cardOf, cardWithin, focused, useFollow } from "./focus";
import { kept, moved, type Direction } from "./move";
import { NewTask } from "./new_task";
import { followed, sessionPath } from "./paths";
import { Tabs } from "./tabs";

export function Board() {
  const ready = useBoard((board) => board.ready);
  const none = useBoard((board) => board.sessions.size === 0);
  const projects = useBoard((board) => board.overview?.projects ?? null);
  const [writing, setWriting] = useState(false);
  const close = useCallback(() => setWriting(false), []);
  const commands = useMemo<Command[]>(
    () => (may("operator") ? [{ id: "new task", label: "New task", group: "Board", keys: "n", run: () => setWriting(true) }] : []),
    [],
  );
  useCommands(commands);
  return (
    <main className="flex flex-col gap-3 p-3 sm:px-4 md:h-0 md:min-h-96 md:grow md:pb-0">
      <h1 className="sr-only">Board</h1>
      {!ready ? <Loading label="Loading the board" /> : none && projects ? <FirstRun projects={projects} /> : <Cards onNew={() => setWriting(true)} />}
      <NewTask open={writing} onClose={close} />
    </main>
  );
}

/** The columns' contents, and who stands above them, as the address filters them. */
function useArranged(filter: Filter): { columns: Arranged[]; above: Card[] } {
  const sessions = useBoard((board) => board.sessions);
  const questions = useBoard((board) => board.questions);
  const before = useRef<ReturnType<typeof questionsOf>>(new Map());
  const asked = useMemo(() => (before.current = questionsOf(questions, before.current)), [questions]);
  return useMemo(
    () => ({ columns: arrange(sessions.values(), asked, filter), above: coordinators(sessions.values(), asked, filter.project) }),
    [sessions, asked, filter],
  );
}

function Cards({ onNew }: { onNew: () => void }) {
  const [query, setQuery] = useSearchParams();
  const text = query.toString();
  const filter = useMemo(() => fromQuery(new URLSearchParams(text)), [text]);
  const sessions = useBoard((board) => board.sessions);
  const { columns, above } = useArranged(filter);
  const [all, setAll] = useState(false);
  const [wanted, setWanted] = useState<string | null>(null);
  const [replying, setReplying] = useState<string | null>(null);
  const search = useRef<HTMLInputElement>(null);
  const region = useRef<HTMLDivElement>(null);

  const cards = columns.map((column) => drawn(column, all));
  const ids = cards.map((some) => some.map((card) => card.session.id));
  const current = kept(ids, wanted);
  const chosen = useChosen(columns, query.get("column"));
  const choose = (name: ColumnName) => setQuery((now) => withColumn(now, name), { replace: true });
  const change = (next: Filter) => setQuery((now) => intoQuery(now, next), { replace: true });
  const showAll = useCallback(() => setAll(true), []);
  const naming = useMemo(() => new Set([...sessions.values()].map((one) => one.project)).size > 1 && filter.group !== "project", [sessions, filter.group]);

  const onReply = useCallback((id: string | null) => {
    setReplying(id);
    if (id) setWanted(id);
  }, []);
  /** What the keys mean right now, for commands that keep their identity. */
  const now = useRef({ cards, ids, current });
  now.current = { cards, ids, current };
  const focus = useCallback((id: string | null) => {
    if (!id) return;
    setWanted(id);
    const card = cardWithin(region.current, id);
    card?.focus({ preventScroll: true });
    card?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, []);
  const move = useCallback((direction: Direction) => focus(moved(now.current.ids, focused(), direction)), [focus]);
  useCommands(useBoardCommands({ now, region, search, focus, move, onReply }));
  useFollow(region);

  return (
    <>
      <Filters sessions={sessions.values()} filter={filter} search={search} onChange={change} onNew={onNew} />
      <Coordinators cards={above} naming={naming} />
      <div
        ref={region}
        onClick={(event) => {
          const to = followed(event.nativeEvent);
          if (!to) return;
          event.preventDefault();
          navigate(to);
        }}
        onFocus={(event) => {
          const id = cardOf(event.target);
          if (id) setWanted(id);
        }}
        onKeyDown={(event) => {
          const direction = ARROWS[event.key];
          const card = event.target instanceof HTMLElement ? event.target.dataset["card"] : undefined;
          if (!card || event.altKey || event.ctrlKey || event.metaKey) return;
          if (direction) move(direction);
          else if (event.key === "Enter") navigate(sessionPath(card));
          else return;
          event.preventDefault();
        }}
        className="relative min-h-0 grow gap-3 max-md:pb-20 md:-mx-4 md:grid md:scroll-px-4 md:px-4 md:snap-x md:grid-cols-[minmax(20rem,1.45fr)_repeat(3,minmax(16rem,1fr))_minmax(14rem,0.85fr)] md:grid-rows-[minmax(0,1fr)] md:overflow-x-auto md:overflow-y-hidden"
      >
        {columns.map((column, index) => (
          <Column
            key={column.name}
            column={column}
            current={ids[index]!.includes(current ?? "") ? current : null}
            replying={ids[index]!.includes(replying ?? "") ? replying : null}
            naming={naming}
            all={all}
            chosen={column.name === chosen}
            narrowed={narrows(filter)}
            onAll={showAll}
            onReply={onReply}
          />
        ))}
      </div>
      <Tabs columns={columns} chosen={chosen} onChoose={choose} />
    </>
  );
}

const ARROWS: Record<string, Direction> = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };

function withColumn(query: URLSearchParams, name: ColumnName): URLSearchParams {
  const next = new URLSearchParams(query);
  next.set("column", name.toLowerCase().replaceAll(" ", "-"));
  return next;
}

/** On a phone: the column that the address names, else the first that had cards when the board was opened. */
function useChosen(columns: readonly Arranged[], named: string | null): ColumnName {
  const [first] = useState(() => columns.find((column) => column.count)?.name ?? COLUMNS[0].name);
  return COLUMNS.find(({ name }) => name.toLowerCase().replaceAll(" ", "-") === named)?.name ?? first;
}
