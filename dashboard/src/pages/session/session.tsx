/** One session: its terminal, its change, its story, its checks, and what it is made of. */
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo, useRef } from "react";
import { Link, useLocation } from "wouter";

import { api, path } from "../../api/client";
import type { BoardSession, Timeline } from "../../api/types";
import { useCommands, type Command } from "../../keys";
import { usePageTitle } from "../../live/notify";
import { useBoard, useSession } from "../../live/store";
import { cx } from "../../ui/cx";
import { Empty } from "../../ui/empty";
import { Loading } from "../../ui/loading";
import { ProblemNote } from "../../ui/problem";
import { checkCount } from "../board/words";
import { sessionPath } from "../board/paths";
import { Checks } from "./checks/checks";
import { Details } from "./details/details";
import { Head } from "./head";
import { MessageBox } from "./messages/box";
import { TABS, tabOf, type Tab } from "./tabs";
import { Past } from "./terminal/past";
import { useUnderHeader } from "./under_header";
import { TimelineView } from "./timeline/timeline";

const LiveTerminal = lazy(() => import("./terminal/terminal"));
const Changes = lazy(() => import("./changes/changes"));

export default function SessionPage({ id, tab }: { id: string; tab?: string | undefined }) {
  const session = useSession(id);
  const ready = useBoard((board) => board.ready);
  usePageTitle(session && (session.title || session.name));
  if (!session && !ready) return <Loading label="Loading the session" />;
  if (!session) {
    return (
      <main className="p-6">
        <Empty title={`There is no session ${id}`}>
          <Link href="/" className="text-accent underline">
            Back to the board
          </Link>
        </Empty>
      </main>
    );
  }
  return <Known key={id} session={session} tab={tabOf(tab)} />;
}

function Known({ session, tab }: { session: BoardSession; tab: Tab }) {
  const { id } = session;
  const [, go] = useLocation();
  const story = useQuery({ queryKey: ["session", id, "timeline"], queryFn: () => api.get<Timeline>(path`/api/sessions/${id}/timeline`) });
  const page = useRef<HTMLElement>(null);
  useUnderHeader();
  const commands = useMemo<Command[]>(
    () => [
      ...TABS.map((one, index) => ({ id: `tab ${one.tab}`, label: `Show ${one.label.toLowerCase()}`, group: "This session", keys: String(index + 1), run: () => go(sessionPath(id, one.tab)) })),
      { id: "write", label: "Write to the agent", group: "This session", keys: "r", run: () => focusMessage(page.current) },
    ],
    [id, go],
  );
  useCommands(commands);
  const fixed = tab === "terminal" || tab === "timeline";
  return (
    <main ref={page} className={cx("mx-auto flex w-full max-w-[110rem] flex-col gap-3 p-3 sm:p-4", fixed ? "min-h-[34rem] flex-[1_1_0px] overflow-hidden max-lg:min-h-[calc(100dvh-1rem)]" : "flex-1")}>
      <Head session={session} tab={tab} story={story.data} onReply={() => focusMessage(page.current)} />
      <Tabs session={session} tab={tab} />
      {tab === "terminal" && (
        <div className="flex min-h-0 flex-1 gap-4">
          <div className="flex min-h-0 min-w-0 flex-1 flex-col gap-3">
            <TerminalPane session={session} />
            <MessageBox id={id} />
          </div>
          <aside aria-label="What happened" className="hidden min-h-0 w-88 shrink-0 flex-col rounded-lg border border-line bg-surface p-2 lg:flex xl:w-104">
            <Story story={story} />
          </aside>
        </div>
      )}
      {tab === "timeline" && (
        <div className="mx-auto flex min-h-0 w-full max-w-4xl flex-1 flex-col gap-3">
          <div className="flex min-h-0 flex-1 flex-col rounded-lg border border-line bg-surface p-2">
            <Story story={story} />
          </div>
          <MessageBox id={id} />
        </div>
      )}
      {tab === "changes" && (
        <Suspense fallback={<Loading label="Loading the change" />}>
          <Changes session={session} />
        </Suspense>
      )}
      {tab === "checks" && <Checks session={session} />}
      {tab === "details" && <Details session={session} />}
    </main>
  );
}

function focusMessage(page: HTMLElement | null): void {
  page?.querySelector<HTMLTextAreaElement>('textarea[aria-label="Message to the agent"]')?.focus();
}

function Story({ story }: { story: { data: Timeline | undefined; isError: boolean; error: unknown } }) {
  if (story.isError) return <ProblemNote error={story.error} />;
  if (!story.data) return <Loading label="Loading the timeline" />;
  return <TimelineView story={story.data} className="flex-1" />;
}

function TerminalPane({ session }: { session: BoardSession }) {
  if (session.pid === null) {
    return (
      <section aria-label="Terminal" className="flex min-h-0 flex-1 flex-col gap-2 overflow-hidden rounded-lg border border-line bg-surface p-2 dark:bg-sunken">
        <p className="px-1 text-xs text-ink-soft">No agent runs now. This is what its terminal showed last.</p>
        <Past id={session.id} />
      </section>
    );
  }
  return (
    <Suspense
      fallback={
        <div className="flex min-h-0 flex-1 flex-col justify-center rounded-lg border border-line bg-surface dark:bg-sunken">
          <Loading label="Opening the terminal" />
        </div>
      }
    >
      <LiveTerminal id={session.id} />
    </Suspense>
  );
}

function Tabs({ session, tab }: { session: BoardSession; tab: Tab }) {
  const checks = checkCount(session.pr);
  const note = checks && (checks.failing.length ? [checks.failing.length, "failing"] : checks.notSetUp.length ? [checks.notSetUp.length, "not set up"] : checks.running ? [checks.running, "running"] : [`${checks.passed}/${checks.total}`, "passed"]);
  return (
    <nav aria-label="Parts of this session" className="-mx-3 flex gap-0.5 overflow-x-auto border-b border-line px-3 sm:-mx-4 sm:px-4">
      {TABS.map((one) => (
        <Link
          key={one.tab}
          href={sessionPath(session.id, one.tab)}
          aria-current={one.tab === tab ? "page" : undefined}
          className={cx(
            "-mb-px flex min-h-9 shrink-0 items-center gap-1.5 border-b-2 px-1.5 text-sm sm:px-2.5",
            one.tab === tab ? "border-accent font-medium text-ink" : "border-transparent text-ink-soft hover:text-ink",
          )}
        >
          {one.label}
          {one.tab === "checks" && note && (
            <span className={cx("rounded-full px-1.5 text-xs", checks.failing.length ? "bg-bad-soft text-bad" : "bg-sunken text-ink-soft")}>
              {note[0]}
              <span className="max-sm:sr-only"> {note[1]}</span>
            </span>
          )}
        </Link>
      ))}
    </nav>
  );
}
