/** A session's words as people say them. Pure. */
import type { BoardSession, ChangeCheck, PullRequest, Question } from "../../api/types";
import type { Tone } from "../../ui/badge";

const STATUS: Record<string, [word: string, tone: Tone]> = {
  merged: ["Merged", "ready"],
  stopped: ["Stopped", "plain"],
  closed: ["Closed", "plain"],
  queued: ["Queued", "plain"],
  starting: ["Starting", "work"],
  failed: ["Failed", "bad"],
  interrupted: ["Interrupted", "bad"],
  blocked: ["Wants permission", "needs"],
  needs_input: ["Asks you", "needs"],
  stuck: ["Stuck", "bad"],
  merging: ["Merging", "ready"],
  limited: ["At its limit", "needs"],
  working: ["Working", "work"],
  conflicted: ["Conflicts", "bad"],
  not_set_up: ["Environment not set up", "needs"],
  ci_failed: ["Checks fail", "bad"],
  changes_requested: ["Changes requested", "needs"],
  ci_running: ["Checks run", "review"],
  review_pending: ["Waits for review", "review"],
  pr_open: ["Draft", "review"],
  approved: ["Approved", "ready"],
  mergeable: ["Ready", "ready"],
  exited: ["Exited", "plain"],
  idle: ["Turn finished", "plain"],
};

export const STATUSES = Object.keys(STATUS);

export const statusWord = (status: string): string => STATUS[status]?.[0] ?? status;
export const statusTone = (status: string): Tone => STATUS[status]?.[1] ?? "plain";

/** Whose word a status rests on, as a reader understands it. */
const SOURCES: Record<string, string> = {
  spool: "agent",
  queue: "merge queue",
  pr: "PR",
};

export const sourceWords = (source: string): string => SOURCES[source] ?? source;

export interface CheckCount {
  passed: number;
  running: number;
  total: number;
  failing: string[];
  /** Those whose failures the base branch has too. */
  known: string[];
  /** Those without a result, because their environment is not set up. */
  notSetUp: string[];
  flaky: string[];
}

/** How the checks at the newest commit stand; null where there are none. */
export function checkCount(pr: PullRequest | null): CheckCount | null {
  if (!pr?.checks.length) return null;
  const named = (...states: string[]) => pr.checks.filter((check) => states.includes(check.state) && !check.onBase).map((check) => check.name);
  return {
    passed: named("success", "flaky").length,
    running: named("queued", "running").length,
    total: pr.checks.length,
    failing: named("failure", "timed_out", "cancelled"),
    known: pr.checks.filter((check) => check.onBase).map((check) => check.name),
    notSetUp: named("not_set_up"),
    flaky: named("flaky"),
  };
}

/** A check's tests: "257 passed, 40 failed (2 new, 38 known on main)"; empty where none were counted. */
export function testCounts(check: ChangeCheck, base: string): string {
  const counted: [number | null, string][] = [[check.passed, "passed"], [check.failed, "failed"], [check.skipped, "skipped"]];
  const counts = counted.filter(([count]) => count).map((part) => part.join(" "));
  if (!check.known) return counts.join(", ");
  const compared = `${check.new ? `${check.new} new, ` : ""}${check.known} known on ${base}`;
  return counts.length ? `${counts.join(", ")} (${compared})` : compared;
}

const REVIEWS: Record<PullRequest["review"], string | null> = {
  none: null,
  pending: null,
  approved: "Approved",
  changes_requested: "Changes requested",
};

/** What reviewers said, where the status does not say it already. */
export function reviewWord(session: BoardSession): string | null {
  const word = session.pr && session.pr.state !== "merged" ? REVIEWS[session.pr.review] : null;
  return word === statusWord(session.status) ? null : word;
}

/** What the status word alone says, and need not be said again. */
const SAID = new Set(["in a turn", "its turn is finished", "approved and green", "its checks run"]);
const BARE = /^pull request #\d+ (?:waits for a review|is a draft)(?:; )?/;

/** Why it is where it is, as far as the rest of the card does not say so. */
export function reason(session: BoardSession, asked: boolean): string | null {
  const { status, waitingFor } = session;
  if (waitingFor?.startsWith("your word")) return asked ? null : `waits for ${waitingFor}`;
  if (status === "limited" && waitingFor) return `waits for ${waitingFor}`;
  if (asked && (status === "needs_input" || status === "blocked")) return null;
  const why = (session.why ?? "").replace(BARE, "");
  return why && !SAID.has(why) ? why : null;
}

/** The last thing to read of it: what an agent that ended badly printed last, else what it says; not what the card says already. */
export function lastLine(session: BoardSession, questions: readonly Question[]): { text: string; printed: boolean } | null {
  const ended = session.status === "failed" || session.status === "exited";
  const printed = ended ? (session.lastOutput ?? "").split("\n").findLast((line) => line.trim()) : undefined;
  if (printed) return { text: printed.trim(), printed: true };
  const { says } = session;
  const known = says === null || says === session.progress.step || questions.some((question) => question.text.includes(says));
  return known ? null : { text: says, printed: false };
}

const OPTION = /^\s*(?:\(?(?:\d{1,2}|[a-h])[.):]|[-*•])\s+(.+?)\s*$/i;
const YES_OR_NO = /[[(]\s*y(?:es)?\s*\/\s*n(?:o)?\s*[\])]\s*:?\s*$/i;

/** The answers that a question lists, where it lists them plainly: one a line, two to six short ones. */
export function options(text: string): string[] {
  if (YES_OR_NO.test(text)) return ["Yes", "No"];
  const lines = text.split("\n");
  const hits = lines.map((line) => OPTION.exec(line)?.[1] ?? null);
  const first = hits.findIndex((hit) => hit !== null);
  const last = hits.findLastIndex((hit) => hit !== null);
  const listed = hits.slice(first, last + 1);
  if (first < 0 || listed.length < 2 || listed.length > 6) return [];
  if (!listed.every((one): one is string => one !== null && one.length <= 60)) return [];
  return new Set(listed).size === listed.length ? listed : [];
}

const OFFERS: Record<string, string> = {
  merge: "Merge",
  "send-to-agent": "Send to the agent",
  "rerun-ci": "Run the checks again",
  spawn: "Start a session",
  start: "Start it all the same",
  restart: "Restart",
  stop: "Stop it",
  escalate: "Call somebody",
  command: "Run the command",
  notify: "Tell people",
  "raise-budget": "Let it use as much again",
};

const REFUSALS: Record<string, string> = { start: "Stop it", "raise-budget": "Leave it stopped" };

/** The action in an offer's `trigger: action?`. */
export function offered(question: Question): { action: string; label: string; refusal: string } {
  const action = /:\s*([\w-]+)\?$/.exec(question.text)?.[1] ?? "";
  return { action, label: OFFERS[action] ?? "Do it", refusal: REFUSALS[action] ?? "Not now" };
}

/** What an offer is about in words, where these say all of it; otherwise they are what would be said to somebody else. */
export function offerWords(question: Question): string | null {
  const { action } = offered(question);
  return question.kind === "offer" && action in REFUSALS && question.context.length > 0 ? question.context[0]! : null;
}

/** An address that a person may be sent to: a forge's page, nothing else. */
export const outward = (url: string | null | undefined): string | null => (url && /^https?:\/\//i.test(url) ? url : null);

/** Which question this is, however often it is told. */
export const questionKey = (question: Question): string =>
  [question.session, question.kind, question.message ?? question.offer ?? question.since].join(" ");
