/** Sessions and questions for tests. */
import type { BoardSession, ChangeCheck, Live, PullRequest, Question } from "../../api/types";

export function session(change: Partial<BoardSession> = {}): BoardSession {
  const name = change.name ?? "fix-login";
  return {
    id: `app-${name}`,
    name,
    project: "app",
    task: "t-1",
    kind: "work",
    title: "Fix the login",
    status: "working",
    activity: "active",
    evidence: { source: "spool", at: "2026-11-15T12:00:00Z" },
    column: "Working",
    branch: `feature/${name}`,
    base: "main",
    head: "abc123",
    workspacePath: "/w",
    agent: "demo",
    profile: null,
    runtime: "process",
    node: null,
    pid: 42,
    exitCode: null,
    issue: null,
    pr: null,
    progress: { done: null, total: null, step: null, testsPassed: null },
    usage: { input: 0, output: 0, usd: null },
    attempts: {},
    waitingFor: null,
    createdAt: "2026-11-15T11:00:00Z",
    updatedAt: "2026-11-15T12:00:00Z",
    stack: null,
    held: 0,
    why: "in a turn",
    collides: [],
    notes: [],
    lastOutput: null,
    says: null,
    ...change,
  };
}

export const check = (name: string, state: ChangeCheck["state"], change: Partial<ChangeCheck> = {}): ChangeCheck => ({
  name,
  state,
  url: null,
  onBase: false,
  passed: null,
  failed: null,
  skipped: null,
  new: 0,
  known: 0,
  reason: null,
  ...change,
});

export const pull = (change: Partial<PullRequest> = {}): PullRequest => ({
  number: 7,
  url: null,
  state: "open",
  head: "abc123",
  checks: [],
  review: "pending",
  mergeable: "yes",
  ...change,
});

export const question = (change: Partial<Question> = {}): Question => ({
  session: "app-fix-login",
  kind: "question",
  text: "Which database?",
  request: null,
  permission: null,
  message: null,
  offer: null,
  since: "2026-11-15T12:00:00Z",
  context: [],
  ...change,
});

export const frame = (change: Partial<Live> = {}): Live => ({
  seq: 1,
  complete: false,
  sessions: [],
  questions: null,
  queue: null,
  overview: null,
  touched: {},
  ...change,
});
