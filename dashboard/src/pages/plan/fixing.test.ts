import { expect, test } from "vitest";

import type { Fix, FixRound, FixTool } from "../../api/types";
import { byTool, course, matter } from "./fixing";

const rounds = (count: number) => Array.from({ length: count }, () => ({}) as FixRound);
const tool = (change: Partial<FixTool>): FixTool => ({ name: "pytest", command: "pytest", folder: null, before: null, after: null, problem: null, ...change });
const fix = (change: Partial<Fix>) => ({ before: null, after: null, rounds: [], tools: [], ...change }) as unknown as Fix;

test.each([
  [{}, "nothing is measured yet"],
  [{ before: 0, after: 0, rounds: rounds(1) }, "nothing fails"],
  [{ before: 30, after: 30, rounds: rounds(1) }, "30 failures"],
  [{ before: 30, after: 1, rounds: rounds(2) }, "30 → 1 failure"],
  [{ before: 30, after: 0, rounds: rounds(3) }, "30 → 0 failures"],
])("%j is %s", (change, text) => expect(course(fix(change))).toBe(text));

test("each tool that found something, or could not look, is named", () => {
  const tools = [tool({ before: 4, after: 0 }), tool({ name: "ruff", before: 0, after: 0 }), tool({ name: "mypy", problem: "it is not installed" })];
  expect(byTool(fix({ tools, rounds: rounds(2) }))).toEqual(["pytest 4 → 0", "mypy could not be run: it is not installed"]);
  expect(byTool(fix({ tools: [tool({ before: 4, after: 4 })], rounds: rounds(1) }))).toEqual(["pytest 4"]);
});

test.each([
  [{ outcome: "landed", reason: "x", status: "merged", why: "y" }, null],
  [{ outcome: "failed", reason: "two attempts came to nothing", status: "stopped", why: "y" }, "two attempts came to nothing"],
  [{ outcome: null, reason: null, status: "ci_running", why: "its checks run" }, null],
  [{ outcome: null, reason: null, status: "queued", why: "waits for a free place" }, "waits for a free place"],
  [{ outcome: null, reason: null, status: null, why: null }, null],
] as const)("%j: %s", (group, text) => expect(matter(group)).toBe(text));
