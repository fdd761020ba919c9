/** The button for the one next thing, and the doing of it. */
import { navigate } from "wouter/use-browser-location";

import { decide, merge, rerunChecks, restore } from "../../actions";
import type { BoardSession, Question } from "../../api/types";
import { Button } from "../../ui/button";
import { sessionPath } from "./paths";
import { act, useDoing } from "./doing";
import { mergeOffer, type NextAction } from "./next";
import { reply } from "./reply";
import { questionKey } from "./words";

/** Do it, where one press is enough. False: it takes words, or a decision that has buttons of its own. */
export function perform(session: BoardSession, next: NextAction): boolean {
  const { id, status } = session;
  switch (next.kind) {
    case "merge":
      void act(id, status, "merging…", () => merge(id));
      return true;
    case "restore":
      void act(id, status, "restoring…", () => restore(id));
      return true;
    case "rerun":
      void act(id, status, "starting the checks…", () => rerunChecks(id));
      return true;
    case "fix":
      void act(id, status, "asking…", () => reply(session, next.message));
      return true;
    case "open":
      navigate(sessionPath(id, next.tab));
      return true;
    default:
      return false;
  }
}

interface Props {
  session: BoardSession;
  question: Question | undefined;
  next: NextAction;
  tab: number;
  onReply: (id: string) => void;
}

export function NextButton({ session, question, next, tab, onReply }: Props) {
  const doing = useDoing(session.id, session.status);
  if (doing) {
    return (
      <span role="status" className="px-1.5 text-xs text-ink-soft">
        {doing}
      </span>
    );
  }
  if (!("label" in next) || next.kind === "offer") return null;
  const press = () => perform(session, next) || onReply(session.id);
  return (
    <>
      {question && mergeOffer(session, question) && (
        <Button small look="quiet" tabIndex={tab} onClick={() => void act(questionKey(question), question.since, "", () => decide(question, "deny"))}>
          Not now
        </Button>
      )}
      <Button small look={next.kind === "merge" ? "primary" : "plain"} tabIndex={tab} onClick={press}>
        {next.label}
        <span className="sr-only">: {session.title || session.name}</span>
      </Button>
    </>
  );
}
