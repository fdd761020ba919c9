/** A session's change: whole, or since it was last looked at; what was said about it; and the review that is being written. */
import { Virtualizer } from "@pierre/diffs";
import { VirtualizerContext, WorkerPoolContextProvider } from "@pierre/diffs/react";
import HighlightWorker from "@pierre/diffs/worker/worker.js?worker";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useState, type ReactNode } from "react";

import { api, path } from "../../../api/client";
import type { BoardSession, Diff, PullRequestView } from "../../../api/types";
import { may } from "../../../auth";
import { cx } from "../../../ui/cx";
import { Empty } from "../../../ui/empty";
import { Loading } from "../../../ui/loading";
import { ProblemNote } from "../../../ui/problem";
import { useDraft, without, written, type DraftComment } from "./draft";
import { ChangedFile, Counts, fileId, type Layout } from "./file";
import { Notes } from "./notes";
import { filesOf, openAtFirst, seen, type FileChange } from "./patch";
import { ReviewBar } from "./review_bar";
import { lastSeen, saw } from "./seen";
import { THEMES } from "./themes";

const LAYOUT = "ao.diff.layout";
const POOL = { workerFactory: () => new HighlightWorker(), poolSize: 1 };
const HIGHLIGHTER = { theme: THEMES, lineDiffType: "word-alt" as const };
const NO_THREADS: PullRequestView["threads"] = [];

export default function Changes({ session }: { session: BoardSession }) {
  const { id } = session;
  const [seen] = useState(() => lastSeen(id));
  const [onlyNew, setOnlyNew] = useState(false);
  const since = onlyNew ? seen : null;
  const diff = useQuery({
    queryKey: ["session", id, "diff", since],
    queryFn: () => api.get<Diff>(path`/api/sessions/${id}/diff`, { since }),
    placeholderData: keepPreviousData,
  });
  const review = useQuery({
    queryKey: ["session", id, "review"],
    queryFn: () => api.get<PullRequestView>(path`/api/sessions/${id}/review`),
    enabled: session.pr !== null,
    placeholderData: keepPreviousData,
  });
  const head = diff.data?.head ?? null;
  useEffect(() => {
    const leave = () => saw(id, head);
    window.addEventListener("pagehide", leave);
    return () => {
      window.removeEventListener("pagehide", leave);
      leave();
    };
  }, [id, head]);

  if (diff.isPending) return <Loading label="Loading the change" />;
  if (diff.isError) return <ProblemNote error={diff.error} />;
  const news = seen !== null && head !== null && seen !== head;
  return (
    <WorkerPoolContextProvider poolOptions={POOL} highlighterOptions={HIGHLIGHTER}>
      <OnThePage>
        <Reviewed session={session} diff={diff.data} threads={review.data?.threads ?? NO_THREADS} refused={review.data?.refused ?? null} since={news ? { seen, onlyNew, onChoose: setOnlyNew } : null} />
      </OnThePage>
    </WorkerPoolContextProvider>
  );
}

/** Draws only the lines that are near the window, however many there are. */
function OnThePage({ children }: { children: ReactNode }) {
  const [virtualizer] = useState(() => new Virtualizer());
  useEffect(() => {
    virtualizer.setup(document);
    return () => virtualizer.cleanUp();
  }, [virtualizer]);
  return <VirtualizerContext.Provider value={virtualizer}>{children}</VirtualizerContext.Provider>;
}

interface Since {
  seen: string;
  onlyNew: boolean;
  onChoose: (onlyNew: boolean) => void;
}

/** Names the files that are too large to be shown, and says how to see them. */
function LeftOut({ session, diff }: { session: string; diff: Diff }) {
  const { omitted } = diff;
  if (!omitted.length) return null;
  return (
    <p role="note" className="text-sm break-words text-ink-soft">
      Too large to be shown: {omitted.slice(0, 5).join(", ")}
      {omitted.length > 5 && ` and ${omitted.length - 5} more`}. See it: <code className="font-mono">{`ao sh ${session} -- git diff ${diff.base}`}</code>
    </p>
  );
}

function Reviewed({ session, diff, threads, refused, since }: { session: BoardSession; diff: Diff; threads: PullRequestView["threads"]; refused: string | null; since: Since | null }) {
  const files = useMemo(() => filesOf(diff.diff), [diff.diff]);
  const first = useMemo(() => openAtFirst(files), [files]);
  const [chosen, setChosen] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [layout, setLayout] = useLayout();
  const [draft, change] = useDraft(session.id);
  const onOpen = useCallback((name: string, open: boolean) => setChosen((before) => new Map(before).set(name, open)), []);
  const onWrite = useCallback(
    (comment: DraftComment) => {
      change((before) => written(before, comment));
      onOpen(comment.path, true);
    },
    [change, onOpen],
  );
  const onDrop = useCallback((comment: DraftComment) => change((before) => without(before, comment.id)), [change]);
  const general = threads.filter((one) => one.path === null);
  const open = (file: FileChange) => chosen.get(file.path) ?? first.has(file.path);
  const judging = may("operator") && (session.pr?.state === "open" || session.pr?.state === "draft");
  const total = { added: sum(files, "added"), removed: sum(files, "removed") };

  if (!files.length && diff.omitted.length) return <LeftOut session={session.id} diff={diff} />;
  if (!files.length) {
    return (
      <Empty title={since?.onlyNew ? "Nothing changed since you last looked" : "Nothing has been changed yet"}>
        {since?.onlyNew && (
          <button type="button" className="text-accent underline" onClick={() => since.onChoose(false)}>
            Show the whole change
          </button>
        )}
      </Empty>
    );
  }
  return (
    <div className="flex flex-1 flex-col gap-3">
      <LeftOut session={session.id} diff={diff} />
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2 text-sm">
        <p className="text-ink-soft">
          {files.length} {files.length === 1 ? "file" : "files"} <Counts file={total} />
          {diff.uncommitted.length > 0 && `, ${diff.uncommitted.length} uncommitted`}
        </p>
        {since && (
          <Choice
            label="How much of it"
            value={since.onlyNew ? "new" : "all"}
            options={[
              ["all", "Whole change"],
              ["new", "Since you last looked"],
            ]}
            onChoose={(value) => since.onChoose(value === "new")}
          />
        )}
        <span className="ml-auto flex items-center gap-4">
          <button type="button" className="min-h-6 rounded text-xs text-ink-soft hover:text-ink hover:underline" onClick={() => setChosen(new Map(files.map((file) => [file.path, !files.every(open)])))}>
            {files.every(open) ? "Fold all" : "Open all"}
          </button>
          <span className="hidden md:block">
            <Choice
              label="Layout"
              value={layout}
              options={[
                ["unified", "Stacked"],
                ["split", "Side by side"],
              ]}
              onChoose={(value) => setLayout(value as Layout)}
            />
          </span>
        </span>
      </div>
      {refused && <ProblemNote error={refused} />}
      {general.length > 0 && <Notes notes={general.map((thread) => ({ kind: "thread", thread }))} id={session.id} onWrite={onWrite} onDrop={onDrop} />}
      <div className={cx("grid items-start gap-3", files.length > 1 && "lg:grid-cols-[16rem_minmax(0,1fr)]")}>
        {files.length > 1 && <FileList files={files} onOpen={onOpen} />}
        <div className="flex min-w-0 flex-col gap-3">
          {files.map((file) => (
            <ChangedFile
              key={file.path}
              id={session.id}
              file={file}
              open={open(file)}
              layout={layout}
              judging={judging}
              threads={threads}
              drafts={draft.comments}
              onOpen={onOpen}
              onWrite={onWrite}
              onDrop={onDrop}
            />
          ))}
        </div>
      </div>
      {judging && <ReviewBar session={session} draft={draft} onChange={change} />}
    </div>
  );
}

const sum = (files: readonly FileChange[], what: "added" | "removed"): number => files.reduce((all, file) => all + file[what], 0);

/** Two columns only where there is room for them. */
function useLayout(): [Layout, (next: Layout) => void] {
  const [layout, setLayout] = useState<Layout>(() => (localStorage.getItem(LAYOUT) === "split" ? "split" : "unified"));
  const [wide, setWide] = useState(() => window.matchMedia("(min-width: 768px)").matches);
  useEffect(() => {
    const query = window.matchMedia("(min-width: 768px)");
    const look = () => setWide(query.matches);
    query.addEventListener("change", look);
    return () => query.removeEventListener("change", look);
  }, []);
  const choose = (next: Layout) => {
    localStorage.setItem(LAYOUT, next);
    setLayout(next);
  };
  return [wide ? layout : "unified", choose];
}

function FileList({ files, onOpen }: { files: readonly FileChange[]; onOpen: (path: string, open: boolean) => void }) {
  const show = (file: FileChange) => {
    onOpen(file.path, true);
    requestAnimationFrame(() => document.getElementById(fileId(file.path))?.scrollIntoView({ block: "start" }));
  };
  return (
    <nav aria-label="Changed files" className="top-[calc(var(--under-header)+0.5rem)] max-h-[calc(100dvh-var(--under-header)-5rem)] overflow-auto rounded-lg border border-line bg-surface p-1 max-lg:max-h-48 lg:sticky">
      <ul>
        {files.map((file) => (
          <li key={file.path}>
            <button type="button" onClick={() => show(file)} className="flex min-h-7 w-full min-w-0 items-center gap-2 rounded px-2 text-left hover:bg-raised pointer-coarse:min-h-9" title={seen(file.path)}>
              <span className="min-w-0 flex-1 truncate font-mono text-xs [direction:rtl]">
                <bdi>{seen(file.path)}</bdi>
              </span>
              <Counts file={file} />
            </button>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Choice({ label, value, options, onChoose }: { label: string; value: string; options: readonly (readonly [string, string])[]; onChoose: (value: string) => void }) {
  return (
    <span role="group" aria-label={label} className="inline-flex rounded-md border border-line bg-surface p-0.5">
      {options.map(([name, text]) => (
        <button
          key={name}
          type="button"
          aria-pressed={name === value}
          onClick={() => onChoose(name)}
          className={cx("min-h-6 rounded px-2 text-xs pointer-coarse:min-h-8", name === value ? "bg-accent-soft font-medium text-accent" : "text-ink-soft hover:text-ink")}
        >
          {text}
        </button>
      ))}
    </span>
  );
}
