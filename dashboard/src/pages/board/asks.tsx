/** What waits for a person's word, verbatim, with the answers at hand. */
import { useState } from "react";

import { answerText, decide, type Decision } from "../../actions";
import type { Question } from "../../api/types";
import { may } from "../../auth";
import { Button } from "../../ui/button";
import { Age, spoken } from "../../ui/time";
import { act, say, useDoing } from "./doing";
import { offered, offerWords, options, questionKey } from "./words";
import { Writing } from "./writing";

const CLAMP = 12;

const HEADS: Record<Question["kind"], string> = {
  question: "Asks you",
  permission: "Wants to run",
  message: "A message waits for your word",
  offer: "Offered to you",
};

/** Give a decision; it shows as given at once. */
export function decided(question: Question, decision: Decision): Promise<boolean> {
  const word = decision === "deny" ? "declining…" : "allowing…";
  return act(questionKey(question), question.since, word, () => decide(question, decision));
}

export function Asks({ question, tab }: { question: Question; tab: number }) {
  const doing = useDoing(questionKey(question), question.since);
  return (
    <section aria-label={HEADS[question.kind]} className="flex flex-col gap-2 rounded-md border border-needs/25 bg-needs-soft/60 px-2.5 py-2 dark:bg-needs-soft/40">
      {(question.kind === "message" || question.kind === "offer") && (
        <p className="flex items-baseline justify-between gap-2 text-xs font-medium text-needs">
          {HEADS[question.kind]}
          <Age at={question.since} className="font-normal" />
        </p>
      )}
      <What question={question} />
      {may("operator") && (
        <div className="flex flex-wrap items-center gap-1.5">
          {question.kind === "question" ? <Answers question={question} tab={tab} /> : <Decisions question={question} tab={tab} busy={doing !== null} />}
          {doing && (
            <span role="status" className="text-xs text-ink-soft">
              {doing}
            </span>
          )}
        </div>
      )}
      {question.kind !== "message" && !offerWords(question) && <Context lines={question.context} label={question.kind === "offer" ? "What would be said" : "What led to it"} tab={tab} />}
    </section>
  );
}

function What({ question }: { question: Question }) {
  if (question.kind === "permission") {
    const { tool, command, reason } = question.permission ?? { tool: null, command: null, reason: null };
    return (
      <>
        <pre className="max-h-40 overflow-auto rounded border border-line bg-surface px-2 py-1.5 font-mono text-xs break-words whitespace-pre-wrap">
          {tool && command ? <span className="text-ink-faint select-none">{tool} </span> : null}
          {command ?? question.text}
        </pre>
        {reason && <p className="text-xs break-words text-ink-soft">{reason}</p>}
      </>
    );
  }
  const words = offerWords(question);
  return (
    <>
      <p className="leading-snug break-words whitespace-pre-wrap">{words ? spoken(words) : question.text}</p>
      {question.kind === "message" && <Quoted lines={question.context} />}
    </>
  );
}

/** A held message, as it would be given to the agent. */
function Quoted({ lines }: { lines: readonly string[] }) {
  const [all, setAll] = useState(false);
  const shown = all ? lines : lines.slice(0, CLAMP);
  if (!lines.length) return null;
  return (
    <div className="rounded border border-line bg-surface px-2 py-1.5">
      <pre className="max-h-60 overflow-auto font-mono text-xs break-words whitespace-pre-wrap">{shown.join("\n")}</pre>
      {lines.length > CLAMP && (
        <Button small look="quiet" className="mt-1" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show less" : `Show all ${lines.length} lines`}
        </Button>
      )}
    </div>
  );
}

function Context({ lines, label, tab }: { lines: readonly string[]; label: string; tab: number }) {
  if (!lines.some((line) => line.trim())) return null;
  return (
    <details className="-my-0.5 text-xs text-ink-soft">
      <summary tabIndex={tab} className="min-h-6 w-fit cursor-pointer rounded leading-6 hover:text-ink">{label}</summary>
      <pre className="mt-1 max-h-48 overflow-auto rounded border border-line bg-surface px-2 py-1.5 font-mono break-words whitespace-pre-wrap">{lines.join("\n")}</pre>
    </details>
  );
}

function Decisions({ question, tab, busy }: { question: Question; tab: number; busy: boolean }) {
  const button = (decision: Decision, label: string, look: "primary" | "plain" | "quiet") => (
    <Button small look={look} tabIndex={tab} disabled={busy} onClick={() => void decided(question, decision)}>
      {label}
    </Button>
  );
  if (question.kind === "permission") {
    return (
      <>
        {button("allow", "Allow", "primary")}
        {button("always", "Always", "plain")}
        {button("deny", "Deny", "plain")}
      </>
    );
  }
  return question.kind === "message" ? (
    <>
      {button("allow", "Let it through", "primary")}
      {button("deny", "Drop it", "plain")}
    </>
  ) : (
    <>
      {button("allow", offered(question).label, "primary")}
      {button("deny", offered(question).refusal, "plain")}
    </>
  );
}

function Answers({ question, tab }: { question: Question; tab: number }) {
  const listed = options(question.text);
  const answer = (text: string) => say(question.session, text, () => answerText(question, text));
  return (
    <>
      {listed.map((text) => (
        <Button key={text} small tabIndex={tab} className="max-w-full !whitespace-normal" onClick={() => void answer(text)}>
          {text}
        </Button>
      ))}
      <Writing tab={tab} label={`Answer ${question.session}`} placeholder="Answer" action="Answer" onSend={answer} />
    </>
  );
}
