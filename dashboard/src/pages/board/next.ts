/** The one thing that a person would do next with a session. Pure. */
import type { BoardSession, Question } from "../../api/types";
import { checkCount, offered } from "./words";

export type NextAction =
  | { kind: "answer"; question: Question }
  | { kind: "approve"; question: Question }
  | { kind: "release"; question: Question }
  | { kind: "offer"; question: Question; label: string }
  | { kind: "fix"; label: string; message: string }
  | { kind: "rerun"; label: string }
  | { kind: "merge"; label: string }
  | { kind: "restore"; label: string }
  | { kind: "reply"; label: string }
  | { kind: "open"; label: string; tab: "changes" | null }
  | { kind: "none" };

const NONE: NextAction = { kind: "none" };
const RERUN: NextAction = { kind: "rerun", label: "Run the checks again" };

/** What this session's oldest question asks for, or else what its status does. */
export function nextAction(session: BoardSession, question: Question | undefined): NextAction {
  return (question && asked(session, question)) ?? ofStatus(session);
}

function asked(session: BoardSession, question: Question): NextAction | null {
  switch (question.kind) {
    case "question":
      return { kind: "answer", question };
    case "permission":
      return { kind: "approve", question };
    case "message":
      return { kind: "release", question };
    case "offer":
      return mergeOffer(session, question) ? null : { kind: "offer", question, label: offered(question).label };
  }
}

/** The offer to merge what is ready says no more than its Merge button. */
export const mergeOffer = (session: BoardSession, question: Question): boolean =>
  question.kind === "offer" && session.column === "Ready to merge" && offered(question).action === "merge";

function ofStatus(session: BoardSession): NextAction {
  const alive = session.pid !== null;
  switch (session.status) {
    case "needs_input":
      return { kind: "reply", label: "Answer" };
    case "blocked":
    case "stuck":
      return { kind: "open", label: "Look at its terminal", tab: null };
    case "failed":
    case "exited":
    case "stopped":
      return { kind: "restore", label: "Restore" };
    case "interrupted":
      return alive ? { kind: "reply", label: "Send a message" } : { kind: "restore", label: "Restore" };
    case "conflicted":
    case "ci_failed":
    case "changes_requested":
      return session.column === "Needs you" ? trouble(session) : NONE;
    case "not_set_up":
      return RERUN;
    case "review_pending":
    case "pr_open":
      return { kind: "open", label: "Review", tab: "changes" };
    case "approved":
    case "mergeable":
      return { kind: "merge", label: "Merge" };
    case "idle":
      return session.pr ? { kind: "open", label: "Review", tab: "changes" } : { kind: "open", label: "Look at it", tab: null };
    case "queued":
      return session.waitingFor === "its first message" ? { kind: "reply", label: "Give it its task" } : NONE;
    default:
      return NONE;
  }
}

/** The agent could not fix it: ask it once more, in words. */
function trouble(session: BoardSession): NextAction {
  const { base, status } = session;
  if (status === "conflicted") {
    return { kind: "fix", label: "Ask to resolve", message: `Your branch still conflicts with ${base}. Please resolve the conflicts, keep both intentions, and commit.` };
  }
  if (status === "changes_requested") {
    return { kind: "fix", label: "Ask to address", message: "The review's comments are still open. Please address each of them, and say what you did." };
  }
  const failing = checkCount(session.pr)?.failing ?? [];
  if (!failing.length) return RERUN;
  return { kind: "fix", label: "Ask to fix", message: `These checks still fail: ${failing.join(", ")}. Please read their output, fix the cause, and commit.` };
}
