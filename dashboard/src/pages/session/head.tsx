/** The top of a session's page: what it is, how it stands and why, whether its work is safe, and what to do next. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";

import { api, path } from "../../api/client";
import type { BoardSession, Timeline, Work } from "../../api/types";
import { may } from "../../auth";
import { Badge } from "../../ui/badge";
import { cx } from "../../ui/cx";
import { Age, spoken } from "../../ui/time";
import { Asks } from "../board/asks";
import { mergeOffer, nextAction } from "../board/next";
import { NextButton } from "../board/next_button";
import { outward, sourceWords, statusTone, statusWord } from "../board/words";
import { ActionsMenu } from "./actions_menu";
import { useQuestions } from "./questions";
import { tabOf, type Tab } from "./tabs";

export function Head({ session, tab, story, onReply }: { session: BoardSession; tab: Tab; story: Timeline | undefined; onReply: () => void }) {
  const questions = useQuestions(session.id);
  const shown = questions.filter((question) => !mergeOffer(session, question));
  const next = nextAction(session, questions[0]);
  const here = next.kind === "open" && tabOf(next.tab ?? undefined) === tab;
  return (
    <header className="flex flex-col gap-2">
      <div className="grid grid-cols-[minmax(0,1fr)_auto] items-center gap-x-3 gap-y-1">
          <p className="flex min-w-0 items-center gap-x-1.5 text-xs text-ink-faint">
            <Link href="/" className="rounded hover:text-ink hover:underline">
              Board
            </Link>
            <span aria-hidden>/</span>
            <span>{session.project}</span>
            <span aria-hidden>/</span>
            <span className="truncate font-mono">{session.id}</span>
          </p>
          <h1 className="col-span-2 row-start-2 text-lg leading-snug font-semibold break-words sm:col-span-1">{session.title || session.name}</h1>
        {may("operator") && (
          <div className="flex items-center gap-2 sm:row-span-2 sm:self-start [&>button]:min-h-8 [&>button]:px-3 [&>button]:text-sm">
            {!here && <NextButton session={session} question={questions[0]} next={next} tab={0} onReply={onReply} />}
            <ActionsMenu session={session} />
          </div>
        )}
      </div>
      <Standing session={session} />
      <Sentence session={session} story={story} asked={shown.some((question) => story?.sentence.includes(question.text))} />
      <Safe id={session.id} />
      {shown.length > 0 && (
        <div className="flex max-w-4xl flex-col gap-2">
          {shown.map((question) => (
            <Asks key={`${question.kind} ${question.message ?? question.offer ?? question.since}`} question={question} tab={0} />
          ))}
        </div>
      )}
    </header>
  );
}

function Standing({ session }: { session: BoardSession }) {
  const { source, at } = session.evidence;
  const url = outward(session.pr?.url);
  return (
    <p className="flex flex-wrap items-center gap-x-3 gap-y-1 text-sm text-ink-soft">
      <span className="flex items-center gap-1.5">
        <Badge tone={statusTone(session.status)}>{statusWord(session.status)}</Badge>
        <span className="text-xs">
          {at && <Age at={at} />}
          {source !== null && <span title="Whose word it rests on"> · {sourceWords(source)}</span>}
        </span>
      </span>
      <span className="text-xs">
        {session.profile ?? session.agent} · <span className="font-mono">{session.branch}</span> → <span className="font-mono">{session.base}</span>
      </span>
      {session.pr &&
        (url ? (
          <a href={url} target="_blank" rel="noopener noreferrer" className="text-xs text-accent hover:underline">
            Pull request #{session.pr.number}
          </a>
        ) : (
          <span className="text-xs">
            Change #{session.pr.number}, {session.pr.state}
          </span>
        ))}
    </p>
  );
}

/** How it stands in one sentence, unless the question below says it; the place is kept while it loads. */
function Sentence({ session, story, asked }: { session: BoardSession; story: Timeline | undefined; asked: boolean }) {
  if (asked) return null;
  return <p className={cx("min-h-5 leading-snug break-words", !story && "text-ink-soft")}>{spoken(story?.sentence || (session.why ?? ""))}</p>;
}

function Safe({ id }: { id: string }) {
  const work = useQuery({ queryKey: ["session", id, "work"], queryFn: () => api.get<Work>(path`/api/sessions/${id}/work`) });
  const text = work.data?.sentence.replace(/^work safe:\s*/i, "");
  if (text?.startsWith("no work yet")) return <p className="min-h-5 text-sm text-ink-soft first-letter:uppercase">{text}</p>;
  return (
    <p className="min-h-5 text-sm break-words text-ink-soft">
      {text && (
        <>
          <span className="font-medium text-ink">Work safe:</span> {text}
        </>
      )}
    </p>
  );
}
