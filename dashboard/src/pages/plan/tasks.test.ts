import { expect, test } from "vitest";

import type { BacklogEntry, BoardSession, Plan, PlannedTask } from "../../api/types";
import { called, concerns, dependents, faults, fresh, isAbout, lines, listed, rest, standing, subject, summary, without, withTask } from "./tasks";

const task = (id: string, change: Partial<PlannedTask> = {}): PlannedTask => ({
  ...fresh([]),
  id,
  title: `Do ${id}`,
  issueKey: null,
  sessions: [],
  status: null,
  ...change,
});
const plan = (change: Partial<Plan> = {}): Plan => ({
  id: "P1",
  project: "app",
  goal: "Ship it\nwith all its parts",
  state: "draft",
  tasks: [task("t1"), task("t2", { dependencies: ["t1"] })],
  notes: [],
  error: null,
  progress: null,
  agent: "claude",
  usage: { input: 0, output: 0, usd: null },
  createdAt: "2026-11-15T12:00:00Z",
  updatedAt: "2026-11-15T12:00:00Z",
  ...change,
});
const session = (change: Partial<BoardSession>) => ({ id: "s", status: "working", column: "Working", waitingFor: null, why: null, ...change }) as BoardSession;
const entry = (change: Partial<BacklogEntry>) => ({ ready: false, reasons: [], ...change }) as BacklogEntry;

test("a changed task stands in its place, a new one at the end", () => {
  const tasks = plan().tasks;
  expect(withTask(tasks, { ...fresh(tasks), id: "t1", title: "Other" }).map((one) => one.title)).toEqual(["Other", "Do t2"]);
  expect(withTask(tasks, fresh(tasks)).map((one) => one.id)).toEqual(["t1", "t2", "t3"]);
});

test("what the daemon fills in is not said to it", () => {
  const [first] = withTask([task("t1", { issueKey: "APP-1", sessions: ["s"], status: "done" })], fresh([task("t1")]));
  expect(Object.keys(first!)).not.toEqual(expect.arrayContaining(["status"]));
  expect(first).not.toHaveProperty("sessions");
  expect(first).not.toHaveProperty("issueKey");
});

test("nothing waits for a task that was taken out", () => {
  const left = without([task("a"), task("b", { dependencies: ["a", "c"] }), task("c")], "a");
  expect(left.map((one) => [one.id, one.dependencies])).toEqual([
    ["b", ["c"]],
    ["c", []],
  ]);
});

test("a new task's id is free", () => expect(fresh([task("t2")]).id).toBe("t3"));

test("lists are read as people write them", () => {
  expect(lines(" src/a.py\n\n src/b.py ")).toEqual(["src/a.py", "src/b.py"]);
  expect(listed("api, ,docs ")).toEqual(["api", "docs"]);
});

const WRONG = "this plan cannot be used: task t1 has no title; task t2 depends on t9, and there is no such task; these tasks wait for one another: t1 → t2 → t1";

test("what is wrong stands at its task", () => {
  const found = faults(WRONG);
  expect(found).toHaveLength(3);
  expect(found.filter((one) => concerns(one, "t1"))).toEqual([found[0], found[2]]);
  expect(found.filter((one) => concerns(one, "t2"))).toEqual([found[1], found[2]]);
  expect(faults("the daemon cannot be reached")).toEqual(["the daemon cannot be reached"]);
});

test.each([
  ["t1 and t2 may run at once, and both change a.py", "t1", true],
  ["t1 and t2 may run at once, and both change a.py", "t2", true],
  ["t10 and t2 may run at once", "t1", false],
  ["two tasks have the id a.b", "a.b", true],
  ["two tasks have the id axb", "a.b", false],
])("%s: about %s? %s", (text, id, is) => expect(isAbout(text, id)).toBe(is));

test("a note stands at the task that it names first", () => {
  expect(subject("t2 and t1 may run at once, and both change a.py", plan().tasks)).toBe("t2");
  expect(subject("the tracker could not be read", plan().tasks)).toBeNull();
});

test("a task cannot come after itself or what waits for it", () => {
  expect([...dependents([task("a"), task("b", { dependencies: ["a"] }), task("c", { dependencies: ["b"] }), task("d")], "a")]).toEqual(["a", "b", "c"]);
  expect(dependents([task("a", { dependencies: ["b"] }), task("b", { dependencies: ["a"] })], "a").size).toBe(2);
});

test.each([
  ["a landed session", task("a", { status: "merged" }), session({ status: "merged", column: "Done" }), undefined, "Landed", null],
  ["a closed issue", task("a", { status: "done" }), session({ status: "stopped", column: "Done" }), undefined, "Landed", null],
  ["one at work", task("a"), session({}), undefined, "Working", null],
  ["one that waits", task("a"), session({ status: "queued", waitingFor: "a free place (2 of 2 agents at work)" }), undefined, "Queued", "waits for a free place (2 of 2 agents at work)"],
  ["one to be reviewed", task("a"), session({ status: "review_pending", column: "In review", waitingFor: "your review: ao review", why: "pull request #1 waits" }), undefined, "Waits for review", null],
  ["one that failed", task("a"), session({ status: "failed", column: "Needs you", why: "the agent exited with 1" }), undefined, "Failed", "the agent exited with 1"],
  ["an issue behind another", task("a", { status: "waiting" }), undefined, entry({ reasons: ["issue 3 is open"] }), "Waits", "issue 3 is open"],
  ["an issue that is next", task("a", { status: "ready" }), undefined, entry({ ready: true }), "Next", null],
  ["an issue that nobody takes by himself", task("a", { status: "ready" }), undefined, entry({ ready: true, reasons: ["autoAssign is off: take it by ao new 1"] }), "Ready", null],
  ["an issue of which nothing is known", task("a"), undefined, undefined, "Not started", null],
] as const)("%s", (_, one, mine, waiting, word, why) => expect(standing(one, mine, waiting)).toMatchObject({ word, why }));

test.each([
  [{}, "2 tasks"],
  [{ tasks: [task("a")] }, "1 task"],
  [{ error: "the tracker refused" }, "2 tasks; not applied: the tracker refused"],
  [{ state: "planning" }, "begins"],
  [{ state: "planning", progress: "claude plans" }, "claude plans"],
  [{ state: "failed", error: "not logged in" }, "not logged in"],
  [{ state: "applied" }, "0 of 2 tasks landed"],
  [{ state: "applied", tasks: [task("a", { status: "done" })] }, "its task landed"],
  [{ state: "applied", tasks: [task("a", { status: "done" }), task("b", { status: "done" })] }, "all 2 tasks landed"],
] as const)("in a list: %j", (change, text) => expect(summary(plan(change as Partial<Plan>), new Map())).toBe(text));

test("a plan is called by its goal's first line", () => {
  expect(called(plan())).toBe("Ship it");
  expect(called(plan({ goal: " " }))).toBe("The open issues");
  expect(called(plan({ goal: "x".repeat(200) }))).toHaveLength(100);
  expect([rest(plan()), rest(plan({ goal: "Ship it" })), rest(plan({ goal: "x".repeat(200) })).length]).toEqual(["with all its parts", "", 200]);
});
