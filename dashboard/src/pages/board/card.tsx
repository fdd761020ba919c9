/** One session on the board. Drawn anew only when its session, its questions or its place under the keys change. */
import { memo } from "react";

import type { BoardSession, Question } from "../../api/types";
import { may } from "../../auth";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { cx } from "../../ui/cx";
import { dollars, tokens } from "../../ui/numbers";
import { Age, spoken } from "../../ui/time";
import { profileOf } from "./arrange";
import { Asks } from "./asks";
import { mergeOffer, nextAction } from "./next";
import { NextButton } from "./next_button";
import { sessionPath } from "./paths";
import { Receipt, Reply } from "./reply";
import { checkCount, lastLine, outward, reason, reviewWord, sourceWords, statusTone, statusWord, testCounts } from "./words";

interface Props {
  session: BoardSession;
  questions: readonly Question[];
  /** The card that the keys mean; its controls are the ones that Tab reaches. */
  current: boolean;
  replying: boolean;
  /** Cards of several projects are on the board. */
  naming: boolean;
  onReply: (id: string | null) => void;
}

export const SessionCard = memo(function SessionCard({ session, questions, current, replying, naming, onReply }: Props) {
  const tab = current ? 0 : -1;
  const next = nextAction(session, questions[0]);
  const done = session.column === "Done";
  const shown = questions.filter((question) => !mergeOffer(session, question));
  const heading = `card-${session.id}`;
  return (
    <article
      data-card={session.id}
      tabIndex={tab}
      aria-labelledby={heading}
      className={cx(
        "relative flex flex-col gap-1.5 rounded-lg border border-line bg-surface p-3 text-sm shadow-card [contain-intrinsic-size:auto_9rem] [content-visibility:auto]",
        "transition-colors hover:border-line-strong focus-visible:border-accent focus-visible:outline-offset-0",
        done ? "gap-1 py-2 shadow-none" : "pb-2",
      )}
    >
      <div className="flex items-start gap-2">
        <h3 id={heading} className={cx("min-w-0 grow leading-snug font-medium break-words", done ? "line-clamp-1 font-normal" : "line-clamp-3")}>
          <a href={sessionPath(session.id)} tabIndex={tab} className="rounded after:absolute after:inset-0 after:rounded-lg hover:underline" title={session.id}>
            {session.title || session.name}
          </a>
        </h3>
        <PullNumber session={session} tab={tab} />
      </div>
      <Status session={session} />
      {!done && <Origin session={session} naming={naming} />}
      {!done && <Reason session={session} asked={shown.length > 0} />}
      {!done && <Progress session={session} />}
      <Collisions session={session} />
      {!done && <LastLine session={session} questions={shown} />}
      <div className="relative z-10 flex flex-col gap-1.5 empty:hidden">
        {shown.map((question) => (
          <Asks key={question.message ?? question.offer ?? question.since} question={question} tab={tab} />
        ))}
        <Receipt session={session} />
        {replying && <Reply session={session} tab={tab} onClose={() => onReply(null)} />}
      </div>
      {(!done || next.kind !== "none") && (
        <footer className="flex min-h-6 flex-wrap items-center gap-x-2 gap-y-1 [&:not(:has(button,p,[role=status]))]:hidden">
          {done ? <Origin session={session} naming={naming} /> : <Change session={session} />}
          {may("operator") && (
            <span className="relative z-10 ml-auto flex items-center gap-1 empty:hidden">
              {!done && !replying && questions[0]?.kind !== "question" && next.kind !== "reply" && (
                <Button small look="quiet" tabIndex={tab} onClick={() => onReply(session.id)} className="px-1.5 font-normal">
                  Reply<span className="sr-only"> to {session.title || session.name}</span>
                </Button>
              )}
              {!replying && <NextButton session={session} question={questions[0]} next={next} tab={tab} onReply={onReply} />}
            </span>
          )}
        </footer>
      )}
    </article>
  );
});

function PullNumber({ session, tab }: { session: BoardSession; tab: number }) {
  if (!session.pr) return null;
  const { number, state } = session.pr;
  const url = outward(session.pr.url);
  const name = `Pull request ${number}, ${state}`;
  const look = "relative z-10 flex min-h-6 shrink-0 items-center rounded px-1 font-mono text-xs text-ink-soft";
  return url ? (
    <a href={url} target="_blank" rel="noopener noreferrer" tabIndex={tab} aria-label={`${name}, at the forge`} title={name} className={cx(look, "-my-0.5 underline decoration-line-strong underline-offset-2 hover:text-ink")}>
      #{number}
    </a>
  ) : (
    <a href={sessionPath(session.id, "changes")} tabIndex={tab} aria-label={`${name}, its change`} title={name} className={cx(look, "-my-0.5 hover:text-ink hover:underline")}>
      #{number}
    </a>
  );
}

function Status({ session }: { session: BoardSession }) {
  const { source, at } = session.evidence;
  return (
    <p className="flex items-center gap-2 text-xs text-ink-faint">
      <Badge tone={statusTone(session.status)}>{statusWord(session.status)}</Badge>
      <span className="min-w-0 truncate">
        {at && <Age at={at} />}
        {source && ` · ${sourceWords(source)}`}
      </span>
      <Cost session={session} />
    </p>
  );
}

function Origin({ session, naming }: { session: BoardSession; naming: boolean }) {
  return (
    <p className="min-w-0 truncate text-xs text-ink-faint" title={`${profileOf(session)} on ${session.branch}`}>
      {naming && <>{session.project} · </>}
      {profileOf(session)} · <span className="font-mono">{session.branch}</span>
    </p>
  );
}

function LastLine({ session, questions }: { session: BoardSession; questions: readonly Question[] }) {
  const last = lastLine(session, questions);
  if (!last) return null;
  return (
    <p className={cx("line-clamp-2 border-l-2 border-line pl-2 text-xs leading-snug break-words text-ink-soft", last.printed && "font-mono")}>
      <span className="sr-only">{last.printed ? "It printed: " : "It says: "}</span>
      {last.text}
    </p>
  );
}

function Reason({ session, asked }: { session: BoardSession; asked: boolean }) {
  const text = reason(session, asked);
  return text ? <p className="line-clamp-3 text-xs leading-snug break-words text-ink-soft">{spoken(text)}</p> : null;
}

/** Where steps still count: later its checks and its review say how far it is. */
const CLIMBING = new Set(["Needs you", "Working"]);

function Progress({ session }: { session: BoardSession }) {
  const { done, total, step } = session.progress;
  const counted = done !== null && total !== null && total > 0;
  if (!CLIMBING.has(session.column) || (!counted && !step)) return null;
  return (
    <div className="flex flex-col gap-1 text-xs text-ink-soft">
      <p className="flex gap-2">
        {counted && (
          <span className="tabular-nums">
            {done}/{total}
            <span className="sr-only"> steps</span>
          </span>
        )}
        {step && <span className="truncate">{step}</span>}
      </p>
      {counted && (
        <div aria-hidden className="h-1 overflow-hidden rounded-full bg-sunken">
          <div className="h-full rounded-full bg-work" style={{ width: `${Math.min(100, (done / total) * 100)}%` }} />
        </div>
      )}
    </div>
  );
}

/** Checks, tests and review, as far as there are any. */
function Change({ session }: { session: BoardSession }) {
  const checks = checkCount(session.pr);
  const review = reviewWord(session);
  const failing = session.pr?.checks.filter((check) => checks?.failing.includes(check.name)) ?? [];
  const tests = failing.length === 1 && failing[0] ? testCounts(failing[0], session.base) : "";
  const testsPassed = tests ? null : session.progress.testsPassed;
  if (!checks && !review && testsPassed === null) return null;
  return (
    <p className="flex min-w-0 grow flex-wrap items-center gap-x-2.5 gap-y-0.5 text-xs text-ink-soft">
      {checks && (
        <>
          {checks.passed > 0 && (
            <span className="text-ready">
              <span aria-hidden>✓</span> {checks.passed === checks.total ? (checks.total === 1 ? "check passes" : `${checks.total} checks pass`) : `${checks.passed} of ${checks.total} pass`}
            </span>
          )}
          {checks.failing.length > 0 && (
            <span className="min-w-0 break-words text-bad">
              <span aria-hidden>✕</span> {checks.failing.slice(0, 3).join(", ")} {checks.failing.length === 1 ? "fails" : "fail"}
              {checks.failing.length > 3 && ` (${checks.failing.length})`}
              {tests && `: ${tests}`}
            </span>
          )}
          {checks.known.length > 0 && (
            <span className="min-w-0 break-words">
              <span aria-hidden>✕</span> {checks.known.slice(0, 3).join(", ")}: known on {session.base}
              {checks.known.length > 3 && ` (${checks.known.length})`}
            </span>
          )}
          {checks.running > 0 && (
            <span>
              <span aria-hidden>○</span> {checks.running} {checks.running === 1 ? "runs" : "run"}
            </span>
          )}
          {checks.flaky.length > 0 && <span className="text-needs">{checks.flaky.join(", ")} flaky</span>}
        </>
      )}
      {testsPassed !== null && (
        <span>
          {testsPassed} {testsPassed === 1 ? "test" : "tests"} passed
        </span>
      )}
      {review && <span className={session.pr?.review === "approved" ? "text-ready" : "text-needs"}>{review}</span>}
    </p>
  );
}

function Collisions({ session }: { session: BoardSession }) {
  if (!session.collides.length || session.column === "Done") return null;
  return (
    <ul className="flex flex-col gap-0.5 text-xs text-needs">
      {session.collides.slice(0, 2).map((one) => (
        <li key={one.session} className="line-clamp-2 break-words" title={one.files.join("\n")}>
          <span aria-hidden>⚠</span> {one.kind === "text" ? "Will conflict with" : "Overlaps with"} {one.session}
          {one.files.length > 0 && ` in ${one.files[0]}${one.files.length > 1 ? ` and ${one.files.length - 1} more` : ""}`}
        </li>
      ))}
      {session.collides.length > 2 && <li>and with {session.collides.length - 2} more</li>}
    </ul>
  );
}

function Cost({ session }: { session: BoardSession }) {
  const { usd, input, output } = session.usage;
  const used = input + output;
  if (usd === null && !used) return null;
  return (
    <span className="ml-auto shrink-0 tabular-nums" title={`${tokens(used)} tokens`}>
      {usd === null ? `${tokens(used)} tokens` : dollars(usd)}
    </span>
  );
}
