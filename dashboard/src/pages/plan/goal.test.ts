import { expect, test } from "vitest";

import { asRequest, lacks, NO_GOAL } from "./goal";

test("what was left open is not said", () => {
  expect(asRequest({ ...NO_GOAL, project: "app", goal: " Ship it " })).toEqual({ projectId: "app", goal: "Ship it" });
  expect(asRequest({ project: "app", goal: "", fromIssues: true, agent: "claude" })).toEqual({ projectId: "app", fromIssues: true, agent: "claude" });
});

test.each([
  [{ ...NO_GOAL, goal: "x" }, "Choose a project"],
  [{ ...NO_GOAL, project: "app", goal: " " }, "Say what is to be achieved, or plan the open issues"],
  [{ ...NO_GOAL, project: "app", fromIssues: true }, null],
  [{ ...NO_GOAL, project: "app", goal: "x" }, null],
])("%j lacks %s", (goal, missing) => expect(lacks(goal)).toBe(missing));
