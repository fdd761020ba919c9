import { expect, test } from "vitest";

import { machine, placed } from "./first_run";
import { NOTHING, asRequest, lacks, usable } from "./new_task";

test("what was left open is not said", () => {
  expect(asRequest({ ...NOTHING, project: "app", task: " Fix it\n" })).toEqual({ projectId: "app", prompt: "Fix it" });
  expect(asRequest({ project: "app", task: "", agent: "codex", issue: " #7 ", after: ["app-a"], stack: true })).toEqual({
    projectId: "app",
    agent: "codex",
    issue: "#7",
    after: ["app-a"],
    stack: true,
  });
});

test("one stands on one session, not on two", () => {
  expect(asRequest({ ...NOTHING, project: "app", task: "x", after: ["a", "b"], stack: true })).not.toHaveProperty("stack");
});

test("a task or an issue must be there, and a project", () => {
  expect(lacks({ ...NOTHING, task: "x" })).toBe("Choose a project");
  expect(lacks({ ...NOTHING, project: "app", task: " " })).toBe("Say what is to be done, or name an issue");
  expect(lacks({ ...NOTHING, project: "app", issue: "7" })).toBeNull();
});

test.each([
  ["~/code/app", { path: "~/code/app" }],
  ["/srv/app", { path: "/srv/app" }],
  ["https://github.com/o/r", { url: "https://github.com/o/r" }],
  ["git@github.com:o/r.git", { url: "git@github.com:o/r.git" }],
])("%s is %j", (text, where) => expect(placed(text)).toEqual(where));

test("an agent that is not installed is no fault, one that cannot be used is", () => {
  const check = (name: string, state: "ok" | "warning" | "failed", detail: string) => ({ name, state, detail, remedy: null });
  const found = machine({ checks: [check("git", "ok", "2.45"), check("tmux", "warning", "not found"), check("agent demo", "ok", "1"), check("agent codex", "warning", "not found"), check("agent aider", "ok", "1"), check("agent goose", "warning", "not signed in")] });
  expect(found.wanting.map((one) => one.name)).toEqual(["tmux", "agent goose"]);
  expect(found.here).toEqual(["aider"]);
  expect(found.absent).toEqual(["codex"]);
});

test("a task can be given to its project's profiles and to agents that are here", () => {
  const agent = (name: string, project: string | null, found = true) => ({ name, project, found, tool: "t", role: null, path: null, version: null, problem: null });
  const agents = [agent("codex", null), agent("aider", null, false), agent("backend", "app"), agent("codex", "app"), agent("elsewhere", "other")];
  expect(usable(agents, "app")).toEqual(["backend", "codex"]);
});
