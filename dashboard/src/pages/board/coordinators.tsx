/** The agents that plan, delegate and watch: above the columns, for they make no change that goes through them. */
import { memo, useState } from "react";
import { Link } from "wouter";

import type { BoardSession, Question } from "../../api/types";
import { may } from "../../auth";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { Age, spoken } from "../../ui/time";
import type { Card } from "./arrange";
import { Asks } from "./asks";
import { nextAction } from "./next";
import { NextButton } from "./next_button";
import { sessionPath } from "./paths";
import { Receipt, Reply } from "./reply";
import { lastLine, reason, statusTone, statusWord } from "./words";

export function Coordinators({ cards, naming }: { cards: readonly Card[]; naming: boolean }) {
  if (cards.length === 0) return null;
  return (
    <section aria-label="Coordinators" className="flex flex-col gap-2">
      {cards.map(({ session, questions }) => (
        <Coordinator key={session.id} session={session} questions={questions} naming={naming} />
      ))}
    </section>
  );
}

const Coordinator = memo(function Coordinator({ session, questions, naming }: { session: BoardSession; questions: readonly Question[]; naming: boolean }) {
  const [replying, setReplying] = useState(false);
  const heading = `coordinator-${session.id}`;
  const rests = session.status === "idle";
  const last = lastLine(session, questions);
  const why = rests ? null : reason(session, questions.length > 0);
  const next = nextAction(session, questions[0]);
  return (
    <article aria-labelledby={heading} className="flex flex-col gap-2 rounded-lg border border-line bg-surface px-3 py-2 text-sm shadow-card">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <h2 id={heading} className="font-medium">
          <Link href={sessionPath(session.id)} className="rounded hover:underline">
            Coordinator{naming && ` of ${session.project}`}
          </Link>
        </h2>
        <span className="flex items-center gap-2 text-xs text-ink-faint">
          <Badge tone={rests ? "plain" : statusTone(session.status)}>{rests ? "Watches" : statusWord(session.status)}</Badge>
          {session.evidence.at && <Age at={session.evidence.at} />}
        </span>
        <p className="line-clamp-2 min-w-0 flex-1 basis-60 text-xs break-words text-ink-soft sm:line-clamp-1">
          {why ? spoken(why) : (last ? last.text : rests && "It is told what happens, and waits for a goal.")}
        </p>
        {may("operator") && !replying && (
          <span className="ml-auto flex items-center gap-1">
            {questions[0]?.kind !== "question" && (
              <Button small look="quiet" onClick={() => setReplying(true)}>
                Write to it
              </Button>
            )}
            {next.kind === "restore" && <NextButton session={session} question={questions[0]} next={next} tab={0} onReply={() => setReplying(true)} />}
          </span>
        )}
      </div>
      {questions.map((question) => (
        <Asks key={question.message ?? question.offer ?? question.since} question={question} tab={0} />
      ))}
      <Receipt session={session} />
      {replying && <Reply session={session} tab={0} onClose={() => setReplying(false)} />}
    </article>
  );
});
