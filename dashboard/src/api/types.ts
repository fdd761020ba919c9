// Written by `make reference` (agent_orchestrator.server.schema.typescript); change the models, not this file.

/** An account that sessions use, and its usage limit if it met one. */
export interface AccountInUse {
  account: string;
  model: string | null;
  state: "free" | "held" | "trying";
  until: string | null;
  resetKnown: boolean | null;
  reason: string | null;
  agents: string[];
  working: number;
  waiting: number;
}

/** The daemon that is active. */
export interface ActiveDaemon {
  host: string;
  pid: number;
  since: string;
  url: string;
}

/** A repository that was just registered. */
export interface AddedProject {
  id: string;
  name: string;
  path: string;
  repo: string | null;
  defaultBranch: string | null;
  config: string | null;
  trusted: boolean | null;
  sessions: number;
  created: string | null;
  agent: string;
  proposal: Proposal | null;
}

/** A coding agent's CLI on this machine, or a profile of a project: a name that a task may be given to. */
export interface Agent {
  name: string;
  project: string | null;
  tool: string;
  role: string | null;
  found: boolean;
  path: string | null;
  version: string | null;
  problem: string | null;
}

/** All agents that we know of, and the profiles of all projects. */
export interface Agents {
  agents: Agent[];
}

/** All that were stopped. */
export interface AllStopped {
  stopped: Stopped[];
}

/** What a person allowed for good in a project. */
export interface AllowedForGood {
  project: string;
  tool: string;
  command: string;
}

/** An answer that was given by a notification's link. */
export interface Answered {
  session: string;
  verb: "allow" | "deny";
  by: string;
}

/** People who are to look at a change. */
export interface AskedPeople {
  /** Their names at the forge; `org/team` is a team of GitHub's. */
  people: string[];
}

/** The command that shows a session's terminal. */
export interface Attach {
  argv: string[];
  env: Record<string, string>;
}

/** Where the log is not what was written. */
export interface AuditBreak {
  seq: number;
  reason: string;
}

/** Who did what, when and why. */
export interface AuditEntry {
  seq: number;
  time: string;
  actor: string;
  type: string;
  session: string | null;
  project: string | null;
  /** The entry that it was done because of. */
  cause: number | null;
  causeType: string | null;
  /** What the event says; a text where it cannot be read any more. */
  data: unknown;
  source: string;
  key: string;
  generation: number;
  /** The time in seconds since the epoch, just as it is kept. */
  at: number;
  /** SHA-256 over the digest before it and the entry. */
  digest: string;
}

/** The last entry. */
export interface AuditHead {
  seq: number;
  digest: string;
}

/** Entries in order. */
export interface AuditLog {
  entries: AuditEntry[];
}

/** What came of following the chain of digests. */
export interface AuditVerdict {
  /** How many fit. */
  entries: number;
  /** The last one that fits. */
  head: AuditHead;
  broken: AuditBreak | null;
}

/** Open issues in the order that they would be taken. */
export interface Backlog {
  entries: BacklogEntry[];
  unread: Unread[];
}

/** An open issue, who would take it, and why that has not come yet. */
export interface BacklogEntry {
  position: number;
  issue: number;
  key: string;
  id: string;
  project: string;
  title: string;
  labels: string[];
  profile: string | null;
  agent: string | null;
  matchedBy: string | null;
  priority: number;
  plan: string | null;
  session: string | null;
  auto: boolean;
  needsYou: boolean;
  ready: boolean;
  reasons: string[];
}

/** A session with all that a board shows of it. */
export interface BoardSession {
  id: string;
  name: string;
  project: string;
  task: string;
  kind: string;
  title: string;
  status: string;
  activity: string;
  evidence: Evidence;
  column: string;
  branch: string;
  base: string;
  head: string | null;
  workspacePath: string | null;
  agent: string;
  profile: string | null;
  runtime: string;
  node: string | null;
  pid: number | null;
  exitCode: number | null;
  issue: string | null;
  pr: PullRequest | null;
  progress: Progress;
  usage: Usage;
  attempts: Record<string, number>;
  waitingFor: string | null;
  createdAt: string;
  updatedAt: string;
  stack: string | null;
  held: number;
  why: string | null;
  collides: PredictedConflict[];
  notes: string[];
  lastOutput: string | null;
  says: string | null;
}

/** A budget, and what is spent and set aside of it. */
export interface BudgetInForce {
  scope: "session" | "day" | "project";
  name: string;
  projects: string[];
  profile: string | null;
  unit: "usd" | "tokens";
  budget: number;
  spent: number | null;
  reserved: number | null;
  unknown: string[];
}

/** What a project may use today, and has used. */
export interface BudgetToday {
  project: string;
  unit: "usd" | "tokens";
  spent: number;
  budget: number;
}

/** One way to set a repository up and to test it, and the files that say so. */
export interface Candidate {
  ecosystem: string;
  setUp: string[];
  test: string | null;
  lint: string | null;
  evidence: string[];
}

/** Failures that likely have one cause. */
export interface Cause {
  key: string;
  title: string;
  failures: Failing[];
}

/** One check of a pull request. */
export interface ChangeCheck {
  name: string;
  state: "queued" | "running" | "success" | "failure" | "flaky" | "cancelled" | "timed_out" | "skipped" | "not_set_up";
  url: string | null;
  onBase: boolean;
  passed: number | null;
  failed: number | null;
  skipped: number | null;
  new: number;
  known: number;
  reason: string | null;
}

/** Who is to do what a session without a task yet was made for. */
export interface ChangedSession {
  /** A profile, else an agent. */
  agent?: string | null;
  runtime?: string | null;
  model?: string | null;
  title?: string | null;
}

/** One check. */
export interface Check {
  name: string;
  state: "queued" | "running" | "success" | "failure" | "flaky" | "cancelled" | "timed_out" | "skipped" | "not_set_up";
  url: string | null;
}

/** A configuration to be checked: the file's path, or its text as if it stood at that path. */
export interface ConfigText {
  path?: string | null;
  text?: string | null;
}

/** A project's coordinating agent. */
export interface CoordinatorState {
  project: string;
  session: Session | null;
  goal: string | null;
  said: string | null;
  digest: DigestState;
  message: MessageState | null;
}

/** A session's change. */
export interface Diff {
  diff: string;
  stat: string;
  base: string;
  head: string;
  files: unknown[];
  omitted: string[];
  uncommitted: string[];
}

/** How far a coordinating agent was informed of what happened. */
export interface DigestState {
  lastAt: string | null;
  pending: boolean;
}

/** How a node is to be drained. */
export interface DrainNode {
  /** It may get sessions again. */
  undo?: boolean;
  /** Interrupt turns that last. */
  now?: boolean;
}

/** How far a node is drained. */
export interface Draining {
  node: Node;
  left: Staying[];
}

/** Where a session works, and with which variables. */
export interface Environment {
  cwd: string;
  env: Record<string, string>;
  node: string | null;
}

/** One thing that happened. */
export interface Event {
  seq: number;
  type: string;
  session: string | null;
  project: string | null;
  source: string;
  time: string;
  data: Record<string, unknown>;
}

/** Events in order. */
export interface Events {
  events: Event[];
}

/** What a status rests on. */
export interface Evidence {
  source: string | null;
  at: string | null;
}

/** One thing that is wrong. */
export interface Failing {
  tool: string;
  id: string;
  file: string;
  line: number;
  message: string;
  detail: string;
}

/** A check that is not simply green, with what explains it. */
export interface FailingCheck {
  name: string;
  state: "queued" | "running" | "success" | "failure" | "flaky" | "cancelled" | "timed_out" | "skipped" | "not_set_up";
  url: string | null;
  onBase: boolean;
  passed: number | null;
  failed: number | null;
  skipped: number | null;
  new: number;
  known: number;
  reason: string | null;
  summary: string;
  log: string;
  newFailures: NamedFailure[];
  knownFailures: string[];
  ownedFailures: string[];
  vanished: string[];
  newlySkipped: string[];
  fewer: number;
  remedy: string | null;
  command: string | null;
}

/** One prerequisite or integration. */
export interface Finding {
  name: string;
  state: "ok" | "warning" | "failed";
  detail: string;
  remedy: string | null;
}

/** What a look at this machine found. */
export interface Findings {
  checks: Finding[];
}

/** A fixing run. */
export interface Fix {
  id: string;
  project: string;
  state: "measuring" | "working" | "green" | "left" | "review" | "measured" | "not_set_up" | "stopped" | "failed";
  ended: boolean;
  reason: string | null;
  base: string;
  commands: string[];
  agent: string | null;
  model: string | null;
  maxRounds: number;
  maxAgents: number | null;
  merge: boolean;
  dryRun: boolean;
  progress: string | null;
  before: number | null;
  after: number | null;
  tools: FixTool[];
  rounds: FixRound[];
  createdAt: string;
  updatedAt: string;
}

/** What one measurement found. */
export interface FixFailures {
  id: string;
  round: number;
  groups: Cause[];
}

/** Failures that likely have one cause. */
export interface FixGroup {
  number: number;
  title: string;
  count: number;
  tools: Record<string, number>;
  files: string[];
  session: string | null;
  status: string | null;
  why: string | null;
  outcome: "landed" | "ready" | "failed" | "stopped" | "later" | null;
  commit: string | null;
  reason: string | null;
}

/** What was measured at one commit of the base, and what was done about it. */
export interface FixRound {
  number: number;
  commit: string;
  at: string;
  total: number;
  counts: Record<string, number>;
  problems: Record<string, string>;
  groups: FixGroup[];
}

/** Something that finds failures, and how many it finds. */
export interface FixTool {
  name: string;
  command: string;
  folder: string | null;
  before: number | null;
  after: number | null;
  problem: string | null;
}

/** Fixing runs. */
export interface Fixes {
  fixes: Fix[];
}

/** A task of a plan. */
export interface GivenTask {
  id: string;
  title: string;
  /** All that the agent must know. */
  description?: string;
  /** What must hold when it is done. */
  acceptance?: string[];
  /** Tasks that must have landed before. */
  dependencies?: string[];
  effort?: "small" | "medium" | "large";
  labels?: string[];
  /** Files that it is expected to change; glob patterns too. */
  files?: string[];
  /** Who is suggested to take it. */
  profile?: string | null;
  /** Higher goes first. */
  priority?: number;
  /** The open issue that it is; absent: one is made. */
  issue?: number | null;
  /** As it was shown; does not count. */
  issueKey?: string | null;
  /** As they were shown; do not count. */
  sessions?: string[];
  /** As it was shown; does not count. */
  status?: string | null;
}

/** The daemon runs. `standby`: another one is active on the same database, and everything else is to be asked of that one. */
export interface Health {
  status: "ok" | "standby";
  version: string;
  pid: number;
  active?: ActiveDaemon | null;
}

/** Another orchestrator's configuration, to be taken over. */
export interface ImportRequest {
  /** where it is; relative paths in it are meant from there */
  path: string;
  /** what stands in it */
  text: string;
  /** the file to write; absent: the configuration of the repository here */
  output?: string | null;
  /** take its values where the file has others */
  replace?: boolean;
  dryRun?: boolean;
  /** of what a dry run showed: a person has read what it would run or open */
  digest?: string;
}

/** A configuration that was taken over, and the file as it is with it. */
export interface Imported {
  kind: string;
  source: string;
  file: string;
  written: boolean;
  itself: boolean;
  text: string;
  entries: ImportedKey[];
  warnings: string[];
  commands: string[];
  digest: string;
}

/** What became of one key of another orchestrator's configuration. */
export interface ImportedKey {
  key: string;
  outcome: "taken" | "changed" | "dropped" | "kept";
  to: string;
  note: string;
}

/** Something that is wanted. */
export interface Issue {
  number: number;
  key: string;
  id: string;
  project: string;
  title: string;
  body: string;
  state: "open" | "closed";
  labels: string[];
  author: string;
  writeAccess: "yes" | "no" | "unknown";
  assignee: string | null;
  after: number[];
  comments: IssueComment[];
  sessions: string[];
  waitingFor: string | null;
  createdAt: string;
  updatedAt: string;
  url: string | null;
}

/** What is to be another; what is not given stays. */
export interface IssueChange {
  title?: string | null;
  body?: string | null;
  state?: "open" | "closed" | null;
  /** Null or empty: nobody. */
  assignee?: string | null;
  /** Issues that must be closed before. */
  after?: number[] | null;
}

/** Something said about an issue. */
export interface IssueComment {
  id: string;
  author: string;
  writeAccess: "yes" | "no" | "unknown";
  body: string;
  at: string;
}

/** Issues of the tracker. */
export interface Issues {
  issues: Issue[];
  unread: Unread[];
}

/** A comment on the change, on one of its files or on a line. */
export interface LineComment {
  body: string;
  path?: string | null;
  line?: number | null;
  /** The comment that it answers. */
  thread?: string | null;
}

/** How things stand: all of it, or what changed since the frame before. */
export interface Live {
  seq: number;
  complete: boolean;
  sessions: BoardSession[];
  questions: Question[] | null;
  queue: QueueEntry[] | null;
  overview: Overview | null;
  touched: Record<string, string[]>;
}

/** An address that signs in the browser that opens it, once. */
export interface LoginLink {
  url: string;
  expiresAt: string;
}

/** What a machine needs to join; the token is shown this once. */
export interface MadeNode {
  name: string;
  token: string;
  url: string;
  home: string;
  command: string;
}

/** A new token; it is shown this once. */
export interface MadeToken {
  id: string;
  name: string;
  role: string;
  createdAt: string;
  kind: "token" | "login" | "node";
  expiresAt: string | null;
  token: string;
}

/** Who asks. */
export interface Me {
  kind: "local" | "cli" | "token" | "login" | "session";
  role: "viewer" | "operator" | "admin" | null;
  name: string | null;
  version: string;
}

/** A person's request to merge a change. */
export interface MergeRequest {
  strategy?: "squash" | "merge" | "rebase" | null;
  /** Land it although its checks fail; this is recorded. */
  force?: boolean;
  /** Answer when it has landed or was refused. */
  wait?: boolean;
  /** Seconds after which `wait` is answered in any case. */
  timeout?: number;
}

/** A message and what became of it. */
export interface Message {
  messageId: string;
  state: "queued" | "held" | "delivered" | "acknowledged" | "failed";
  content: string;
  sender: string;
  createdAt: string;
  deliveredAt: string | null;
  acknowledgedAt: string | null;
  reason: string | null;
}

/** A message was accepted. */
export interface MessageState {
  messageId: string | null;
  state: string;
}

/** A session's messages in order. */
export interface Messages {
  messages: Message[];
}

/** One failing test, or one error. */
export interface NamedFailure {
  name: string;
  message: string;
}

/** A person's word on what the agent asks: text, or a decision on a permission it wants. */
export interface NewAnswer {
  text?: string | null;
  decision?: "allow" | "always" | "deny" | null;
  /** The message that waits for a person's word, if the decision is on one. */
  message?: string | null;
  /** The action that a rule offers, if the decision is on one. */
  offer?: string | null;
  /** `request` of the question that was shown: refused with 409 if the agent asks something else by now. */
  request?: string | null;
}

/** Something said about an issue. */
export interface NewComment {
  /** Whose words these are; absent: the caller's. */
  author?: string | null;
  /** May the author write to the repository? Absent: the caller may; of somebody else it is unknown. */
  writeAccess?: "yes" | "no" | "unknown" | null;
  body: string;
}

/** Failing tests and lint errors are to be fixed. */
export interface NewFix {
  /** The project; without it, the one of the caller's folder. */
  projectId?: string | null;
  /** The branch that is to become green. */
  base?: string | null;
  /** What finds failures, instead of what is found. */
  commands?: string[];
  /** How often agents are sent. */
  maxRounds?: number;
  /** How many of them may work at once. */
  maxAgents?: number | null;
  /** A profile, else an agent. */
  agent?: string | null;
  model?: string | null;
  /** False: what is verified is left for review. */
  merge?: boolean;
  /** Only measure and group. */
  dryRun?: boolean;
}

/** A coordinating agent to be started, or found, and what is wanted of it. */
export interface NewGoal {
  /** The project; without it, the one of the caller's folder. */
  projectId?: string | null;
  /** A message to it; without it, it is only started. */
  goal?: string | null;
  /** A profile, else an agent; without it, as configured. */
  agent?: string | null;
  model?: string | null;
}

/** An issue to be opened. */
export interface NewIssue {
  /** Whose words these are; absent: the caller's. */
  author?: string | null;
  /** May the author write to the repository? Absent: the caller may; of somebody else it is unknown. */
  writeAccess?: "yes" | "no" | "unknown" | null;
  title: string;
  body?: string;
  labels?: string[];
  /** Issues that must be closed before. */
  after?: number[];
  /** The project; without it, the one of the caller's folder. */
  projectId?: string | null;
}

/** Labels to be added. */
export interface NewLabels {
  labels: string[];
}

/** A one-time link to be made. */
export interface NewLoginLink {
  role?: "viewer" | "operator" | "admin";
}

/** A message to the agent. */
export interface NewMessage {
  content: string;
  /** Stop the agent's turn first. */
  interrupt?: boolean;
}

/** A machine that is to join the cluster by hand. */
export interface NewNode {
  /** Its name. */
  name: string;
}

/** A goal to be made into tasks. */
export interface NewPlan {
  /** The project; without it, the one of the caller's folder. */
  projectId?: string | null;
  /** What is to be reached; without it and without tasks: the open issues are planned. */
  goal?: string;
  /** The tracker's open issues are the tasks. */
  fromIssues?: boolean;
  /** The profile or agent that plans; absent: the configured one. */
  agent?: string | null;
  model?: string | null;
  /** The tasks themselves: nobody is asked. */
  tasks?: GivenTask[] | null;
}

/** A repository to work in: a folder here, or a URL to clone. */
export interface NewProject {
  path?: string | null;
  url?: string | null;
  /** Write its configuration if there is none. */
  init?: boolean;
}

/** A review of a change. */
export interface NewReview {
  /** Whose words these are; absent: the caller's. */
  author?: string | null;
  /** May the author write to the repository? Absent: the caller may; of somebody else it is unknown. */
  writeAccess?: "yes" | "no" | "unknown" | null;
  /** `approve`, `request-changes` and `comment` mean the same as the long forms. */
  verdict?: "approved" | "changes_requested" | "commented" | "approve" | "request-changes" | "comment";
  body?: string;
  comments?: LineComment[];
}

/** A session to be made. */
export interface NewSession {
  /** The project; without it, the one of the caller's folder. */
  projectId?: string | null;
  /** `123`, `#123`, `GH-123`, `LIN-3` or a URL. */
  issue?: string | number | null;
  title?: string | null;
  /** What the agent is to do; 1 MB at most. */
  prompt?: string | null;
  /** A profile, else an agent. */
  agent?: string | null;
  model?: string | null;
  /** An existing branch is continued. */
  branch?: string | null;
  base?: string | null;
  name?: string | null;
  /** Sessions that must be done before. */
  after?: string[];
  /** Start on the branch of the session it comes after, and follow it when it lands. */
  stack?: boolean;
  /** A pull request to take over. */
  pr?: number | string | null;
  /** A conversation of the agent's, begun by hand, to go on with. */
  resumeId?: string | null;
  labels?: string[];
  /** Higher comes first. */
  priority?: number | null;
  runtime?: string | null;
  workspace?: string | null;
  node?: string | null;
  /** The agent starts at its first message. */
  defer?: boolean;
  /** Files that it is expected to change; glob patterns too. */
  files?: string[];
  /** Sessions of one group share `groupLimit`. */
  group?: string | null;
  /** How many of the group may work at once. */
  groupLimit?: number | null;
}

/** A token to be made. */
export interface NewToken {
  name: string;
  role?: "viewer" | "operator" | "admin";
}

/** A machine of the cluster. */
export interface Node {
  name: string;
  state: "ready" | "draining" | "unreachable" | "gone";
  reason: string;
  address: string;
  labels: Record<string, string>;
  cpus: number;
  memory: number;
  freeCpus: number;
  freeMemory: number;
  load: number | null;
  availableMemory: number | null;
  sessions: string[];
  since: string | null;
  draining: boolean;
}

/** All machines of the cluster. */
export interface Nodes {
  nodes: Node[];
}

/** A notification of a person. */
export interface Notification {
  id: number;
  session: string | null;
  project: string | null;
  title: string;
  message: string;
  level: "urgent" | "action" | "warning" | "info";
  trigger: string;
  at: string;
}

/** The notifications of people, newest first. */
export interface Notifications {
  notifications: Notification[];
}

/** The fleet in one line. */
export interface Overview {
  version: string;
  active: number;
  limit: number | null;
  waiting: number;
  projects: OverviewProject[];
  limits: UsageLimit[];
  today: Used;
  budgets: BudgetToday[];
}

/** How a project is. */
export interface OverviewProject {
  id: string;
  name: string;
  base: string | null;
  baseState: "green" | "red" | "running" | "unknown";
  baseFailing: string[];
  active: number;
  limit: number | null;
  sessions: number;
  needsYou: number;
}

/** Two sessions that will conflict; `a` is the elder. */
export interface Pair {
  a: string;
  b: string;
  files: string[];
  kind: "text" | "overlap";
}

/** Which sessions will conflict, and in which files. */
export interface Pairs {
  pairs: Pair[];
}

/** What an agent asks to do, or may do without asking. */
export interface Permission {
  tool: string;
  command: string | null;
  reason: string | null;
}

/** What was allowed for good. */
export interface Permissions {
  permissions: AllowedForGood[];
}

/** A goal made into tasks. */
export interface Plan {
  id: string;
  project: string;
  goal: string;
  state: "planning" | "draft" | "failed" | "applying" | "applied" | "discarded";
  tasks: PlannedTask[];
  notes: string[];
  error: string | null;
  progress: string | null;
  agent: string | null;
  usage: Usage;
  createdAt: string;
  updatedAt: string;
}

/** How a plan's tasks are to become issues. */
export interface PlanApplication {
  /** They are taken as soon as there is room. */
  start?: boolean;
  /** How many of its sessions may work at once. */
  groupLimit?: number | null;
}

/** Other tasks for a plan: as such, or as the text that was edited. */
export interface PlanChange {
  /** Absent: it stays. */
  goal?: string | null;
  tasks?: GivenTask[] | null;
  /** Goal and tasks as YAML. */
  text?: string | null;
}

/** One task of a plan; `sessions` and `status` are known once it is applied. */
export interface PlannedTask {
  id: string;
  title: string;
  description: string;
  acceptance: string[];
  dependencies: string[];
  effort: "small" | "medium" | "large";
  labels: string[];
  files: string[];
  profile: string | null;
  priority: number;
  issue: number | null;
  issueKey: string | null;
  sessions: string[];
  status: string | null;
}

/** Plans, the newest first. */
export interface Plans {
  plans: Plan[];
}

/** A plugin, and whether it may be used. */
export interface Plugin {
  slot: string | null;
  name: string;
  origin: string;
  version: string | null;
  permissions: string[] | null;
  digest: string | null;
  inForce: boolean;
  problem: string | null;
}

/** A file of code that may be run, with this content. */
export interface PluginFile {
  path: string;
  sha256: string;
}

/** All plugins. */
export interface Plugins {
  plugins: Plugin[];
}

/** Another session that this one will conflict with. */
export interface PredictedConflict {
  session: string;
  kind: "text" | "overlap";
  files: string[];
}

/** What went wrong, and what to do (RFC 9457). */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  remedy: string;
  category: string;
  exitCode: number;
}

/** How far the agent is. */
export interface Progress {
  done: number | null;
  total: number | null;
  step: string | null;
  testsPassed: number | null;
}

/** A repository that we work in. */
export interface Project {
  id: string;
  name: string;
  path: string;
  repo: string | null;
  defaultBranch: string | null;
  config: string | null;
  trusted: boolean | null;
  sessions: number;
}

/** All projects. */
export interface Projects {
  projects: Project[];
  here: string | null;
}

/** The system prompt and the task of an agent. */
export interface Prompt {
  system: string;
  prompt: string;
}

/** What came of running a project's set-up and checks in a clean checkout of its base branch. */
export interface Proof {
  project: string;
  base: string;
  commit: string;
  proven: boolean;
  reason: string;
  summary: string;
  setUp: ProvenSetUp;
  checks: ProvenCheck[];
  tried: Tried[];
  leftOut: string[];
  drift: string[];
  written: string | null;
}

/** A line of a proof: what is `running`, at last the `proof`, or the `problem` that ended it. */
export interface ProofLine {
  running?: ProofRunning | null;
  proof?: Proof | null;
  problem?: Problem | null;
}

/** The command that is being run. */
export interface ProofRunning {
  command: string;
  seconds: number;
  attempt: number;
  of: number;
}

/** What was detected for a project: commands that do not run before a person confirms them. */
export interface Proposal {
  keys: string[];
  commands: string[];
  candidates: Candidate[];
  digest: string;
}

/** A check's result on the base branch. */
export interface ProvenCheck {
  name: string;
  command: string;
  state: "success" | "failure" | "flaky" | "not_set_up" | "unknown";
  seconds: number;
  passed: number | null;
  failed: number | null;
  skipped: number | null;
  failures: ProvenFailure[];
}

/** A test that fails on the base branch. */
export interface ProvenFailure {
  name: string;
  message: string;
}

/** The set-up commands, and how long they took. */
export interface ProvenSetUp {
  commands: string[];
  seconds: number;
}

/** What to prove: what is configured, or, by the `digest` of a proposal, what was detected. */
export interface Proving {
  detected?: string | null;
  /** With `detected`; false: write and trust the most likely one, and run nothing. */
  run?: boolean;
}

/** A clean-up of what is provably safe. */
export interface PruneRequest {
  dryRun?: boolean;
}

/** What a clean-up removed, and what it kept. */
export interface Pruned {
  removed: Record<string, unknown>[];
  kept: Record<string, unknown>[];
  dryRun: boolean;
}

/** A session's pull request. */
export interface PullRequest {
  number: number;
  url: string | null;
  state: "draft" | "open" | "merged" | "closed";
  head: string | null;
  checks: ChangeCheck[];
  review: "none" | "pending" | "approved" | "changes_requested";
  mergeable: "yes" | "no" | "unknown";
}

/** A pull request with what was said about it. */
export interface PullRequestView {
  number: number;
  url: string | null;
  state: "draft" | "open" | "merged" | "closed";
  head: string | null;
  checks: ChangeCheck[];
  review: "none" | "pending" | "approved" | "changes_requested";
  mergeable: "yes" | "no" | "unknown";
  session: string;
  title: string;
  base: string;
  refused: string | null;
  conflicts: string[];
  failing: FailingCheck[];
  reviews: Review[];
  requested: string[];
  threads: Thread[];
}

/** Something that waits for a person. */
export interface Question {
  session: string;
  kind: "question" | "permission" | "message" | "offer";
  text: string;
  request: string | null;
  permission: Permission | null;
  message: string | null;
  offer: string | null;
  since: string;
  context: string[];
}

/** What waits for a person, oldest first. */
export interface Questions {
  questions: Question[];
}

/** The merge queue in order. */
export interface Queue {
  entries: QueueEntry[];
}

/** A change in the merge queue. */
export interface QueueEntry {
  session: string;
  position: number;
  state: "queued" | "checking" | "green" | "landing" | "waiting";
  reason: string | null;
  base: string;
  ahead: string[];
  tree: string | null;
  checks: Check[];
  passedBy: string[];
  collides: string[];
}

/** What a pull request that is no draft any more is called; absent: as it was. */
export interface ReadyPullRequest {
  title?: string | null;
}

/** What happened since a moment, the most important first. */
export interface Recap {
  since: string;
  lines: RecapLine[];
}

/** One thing that happened, or several alike. */
export interface RecapLine {
  kind: "merged" | "asked" | "failed" | "restarted" | "limits" | "budgets" | "bases" | "opened" | "slept";
  text: string;
  sessions: string[];
}

/** An account that is to be held no more. */
export interface ReleasedAccount {
  /** As `ao usage` names it: `work`, or `work opus`. */
  account: string;
}

/** Holds that were lifted. */
export interface ReleasedAccounts {
  released: string[];
  at: string;
}

/** A recorded log to be run through today's rules. */
export interface Replay {
  events: Record<string, unknown>[];
  project?: string | null;
}

/** Discussions that are settled. */
export interface Resolved {
  /** Each by its id, or by the id of a comment in it. */
  threads?: string[];
  /** All that are open. */
  all?: boolean;
}

/** A review by a person or an agent. */
export interface Review {
  id: string;
  verdict: "approved" | "changes_requested" | "commented";
  author: string;
  writeAccess: "yes" | "no" | "unknown";
  kind: "person" | "bot" | "agent";
  reviewer: string | null;
  counts: boolean;
  body: string;
  head: string;
  at: string;
}

/** An agent that is to review a change. */
export interface ReviewRequest {
  /** A profile, else an agent; absent: the project's own. */
  agent?: string | null;
  /** What it is to look at in particular. */
  message?: string;
}

/** A reaction rule in force; of a session also how far it is. */
export interface Rule {
  name: string;
  trigger: string;
  auto: boolean;
  action: string;
  message: string | null;
  retries: number | null;
  backoff: number[] | null;
  escalateAfter: number | string | null;
  escalate: boolean;
  threshold: number | null;
  delay: number | null;
  unlessWatched: boolean;
  condition: string | null;
  priority: string | null;
  strategy: string | null;
  deleteAfter: boolean;
  includeSummary: boolean;
  approvalAfter: number | null;
  command: string[] | null;
  timeout: number | null;
  agent: string | null;
  source: "default" | "changed" | "configured";
  holds: boolean | null;
  attempts: number;
  escalated: boolean;
  since: string | null;
}

/** The reaction rules in force. */
export interface Rules {
  rules: Rule[];
}

/** A command to be run in a session's workspace. */
export interface RunCommand {
  /** The program and its arguments. */
  command: string[];
}

/** One agent working on one task in one workspace on one branch. */
export interface Session {
  id: string;
  name: string;
  project: string;
  task: string;
  kind: string;
  title: string;
  status: string;
  activity: string;
  evidence: Evidence;
  column: string;
  branch: string;
  base: string;
  head: string | null;
  workspacePath: string | null;
  agent: string;
  profile: string | null;
  runtime: string;
  node: string | null;
  pid: number | null;
  exitCode: number | null;
  issue: string | null;
  pr: PullRequest | null;
  progress: Progress;
  usage: Usage;
  attempts: Record<string, number>;
  waitingFor: string | null;
  createdAt: string;
  updatedAt: string;
}

/** A session in short. */
export interface SessionStatus {
  state: "idle" | "working" | "waiting" | "error";
  status: string;
  activity: string;
  currentTask: string | null;
  lastActivity: string | null;
  branch: string;
  workspacePath: string | null;
  agent: string;
  progress: Progress;
}

/** Sessions, merged and stopped ones included; `unread` only where something cannot be read, `untold` only where a notifier fails. */
export interface Sessions {
  sessions: Session[];
  unread?: UnreadPlace[];
  untold?: UntoldBy[];
}

/** One value of the configuration. */
export interface Setting {
  key: string;
  value: unknown;
}

/** How the daemon is to end. */
export interface Shutdown {
  /** Stop the sessions too; otherwise they run on. */
  sessions?: boolean;
}

/** What a browser signs in with: one of both. */
export interface SignIn {
  /** Of a one-time link. */
  code?: string | null;
  /** Any token but a session's. */
  token?: string | null;
}

/** Who signed in, and what his pages must show besides the cookie. */
export interface SignedIn {
  kind: "local" | "cli" | "token" | "login" | "session";
  role: "viewer" | "operator" | "admin" | null;
  name: string | null;
  version: string;
  page: string;
}

/** How the work goes, day by day, the oldest first. */
export interface Stats {
  days: StatsDay[];
  medianToMerge: number | null;
}

/** One day (UTC). */
export interface StatsDay {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  usd: number | null;
  forgeCalls: number;
  day: string;
  started: number;
  opened: number;
  landed: number;
  medianToMerge: number | null;
  retries: Record<string, number>;
}

/** A session that has not left yet. */
export interface Staying {
  session: string;
  waits: string;
}

/** What an event of a recorded log would lead to today. */
export interface Step {
  seq: number;
  type: string;
  session: string | null;
  status: string | null;
  intents: Record<string, unknown>[];
}

/** A recorded log, run through today's rules. */
export interface Steps {
  steps: Step[];
}

/** A stopped session: where everything went, and how to undo it. */
export interface Stopped {
  session: Session;
  saved: string[];
  undo: string;
}

/** Something that is wanted, and the sessions that attempt it. */
export interface Task {
  id: string;
  project: string;
  title: string;
  description: string;
  issue: string | null;
  labels: string[];
  priority: number;
  after: string[];
  sessions: string[];
  createdAt: string;
}

/** What is wanted. */
export interface Tasks {
  tasks: Task[];
}

/** What a rule would do. */
export interface TestedRule {
  rule: string;
  action: string;
  holds: boolean | null;
  sample: string[];
  condition: string | null;
  applies: boolean;
  offered: boolean;
  attempt: number;
  exhausted: boolean;
  after: number;
  text: string | null;
  heldFor: string | null;
  to: string;
  command: string[] | null;
  problem: string | null;
}

/** What the rules of a trigger would do for a session. */
export interface TestedRules {
  session: string;
  trigger: string;
  rules: TestedRule[];
}

/** A trigger whose rules are to be tried. */
export interface TestedTrigger {
  trigger: string;
}

/** A comment and the answers to it. */
export interface Thread {
  id: string;
  path: string | null;
  line: number | null;
  resolved: boolean;
  comments: ThreadComment[];
}

/** One comment of a thread. */
export interface ThreadComment {
  id: string;
  author: string;
  writeAccess: "yes" | "no" | "unknown";
  body: string;
  byAgent: boolean;
  kind: "person" | "bot" | "agent";
  at: string;
}

/** What happened to a session, oldest first, and how it stands in one sentence. */
export interface Timeline {
  sentence: string;
  entries: TimelineEntry[];
}

/** One thing that happened to a session, in words. */
export interface TimelineEntry {
  seq: number;
  at: string;
  kind: "seen" | "decided" | "sent" | "acknowledged" | "said" | "did";
  title: string;
  detail: string | null;
  trigger: string | null;
  message: string | null;
  by: string;
}

/** A named token, or a browser that signed in, without what would open anything. */
export interface Token {
  id: string;
  name: string;
  role: string;
  createdAt: string;
  kind: "token" | "login" | "node";
  expiresAt: string | null;
}

/** All named tokens, and all browsers that are signed in. */
export interface Tokens {
  tokens: Token[];
}

/** One way to set up and test that was tried, and why it does not work, if it does not. */
export interface Tried {
  ecosystem: string;
  setUp: string[];
  test: string | null;
  proven: boolean;
  reason: string;
}

/** What came of a test by one notifier. */
export interface TriedNotifier {
  name: string;
  plugin: string;
  project: string | null;
  levels: ("urgent" | "action" | "warning" | "info")[];
  sent: boolean;
  problem: string | null;
  remedy: string | null;
}

/** What came of a test by each notifier. */
export interface TriedNotifiers {
  notifiers: TriedNotifier[];
}

/** Commands that came with a repository, and whether they may run. */
export interface Trust {
  project: string;
  commands: unknown[];
  digest: string;
  trusted: boolean;
}

/** The project whose commands may run; without a path, the one of the caller's folder. With the `digest` that was shown, nothing else is trusted: 409 where something changed since. */
export interface Trusted {
  path?: string | null;
  digest?: string | null;
}

/** The change that reverts a merged one; it is merged like any other. */
export interface Undone {
  session: string;
  branch: string;
  commit: string;
  change: Session;
}

/** A project whose tracker could not be read: its issues may be out of date. */
export interface Unread {
  project: string;
  why: string;
}

/** A forge or tracker that cannot be read, since when and why: its pull requests and issues may be out of date. */
export interface UnreadPlace {
  project: string;
  name: string;
  why: string;
  since: string;
}

/** A notifier that does not work, since when and why: what it was to send waits, or was given up. */
export interface UntoldBy {
  notifier: string;
  project: string | null;
  since: string;
  why: string;
}

/** What it took. */
export interface Usage {
  input: number;
  output: number;
  usd: number | null;
}

/** What a session used as time went on, added up, and what of it by model. */
export interface UsageCourse {
  points: UsagePoint[];
  models: UsageRow[];
}

/** An account that has met its usage limit. */
export interface UsageLimit {
  account: string;
  until: string;
}

/** What was used up to a moment. */
export interface UsagePoint {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  usd: number | null;
  forgeCalls: number;
  at: string;
}

/** Tokens and dollars of one session, project, agent, model or day. */
export interface UsageRow {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  usd: number | null;
  forgeCalls: number;
  key: string;
}

/** What was used. */
export interface UsageTable {
  rows: UsageRow[];
  total: Used;
  accounts: AccountInUse[];
  budgets: BudgetInForce[];
}

/** Tokens, dollars, and calls of a forge's own command line (`gh`, `glab`). */
export interface Used {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  usd: number | null;
  forgeCalls: number;
}

/** What a check of a configuration found. */
export interface Validity {
  valid: boolean;
  errors: unknown[];
  warnings: unknown[];
}

/** A value of the configuration, and the file it stands in. */
export interface Value {
  key: string;
  value: unknown;
  file: string | null;
}

/** Whether a webhook was new; false if it had been received before. */
export interface WebhookReceipt {
  taken: boolean;
}

/** The facts, evidence and rules behind a status. */
export interface Why {
  session: string;
  status: string;
  column: string;
  evidence: Evidence;
  lines: string[];
  facts: Record<string, unknown>;
  effects: unknown[];
  reactions: unknown[];
}

/** What a session is shown by on a person's screen. */
export interface Window {
  session: string;
  live: boolean;
  workspacePath: string | null;
  node: string | null;
  cwd: string;
  url: string;
  terminal: WindowTerminal;
}

/** The terminal plugin that a project's configuration names. */
export interface WindowTerminal {
  plugin: string;
  options: Record<string, unknown>;
  files: PluginFile[];
}

/** What is to be asked again. */
export interface WithdrawnPermission {
  project: string;
  tool: string;
  command: string;
}

/** Where a session's work is, and whether it is safe. */
export interface Work {
  path: string | null;
  branch: string;
  base: string;
  head: string | null;
  pushed: string | null;
  ahead: number | null;
  uncommitted: string[];
  rescues: string[];
  ports: number[];
  sentence: string;
}
