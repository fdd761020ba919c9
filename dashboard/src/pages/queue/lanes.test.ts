import { expect, test } from "vitest";

import type { Event, QueueEntry } from "../../api/types";
import { byBase, droppedOf, trying } from "./lanes";

const entry = (session: string, position: number, more: Partial<QueueEntry> = {}): QueueEntry => ({
  session,
  position,
  state: "queued",
  reason: null,
  base: "main",
  ahead: [],
  tree: null,
  checks: [],
  passedBy: [],
  collides: [],
  ...more,
});
const failed = (seq: number, session: string | null, data: Record<string, unknown> = {}): Event => ({
  seq,
  type: "landing-failed",
  session,
  project: "p",
  source: "daemon",
  time: "2026-11-15T12:00:00Z",
  data,
});

test("each base has its own lane, in the queue's order", () => {
  const lanes = byBase([entry("b", 2), entry("x", 1, { base: "dev" }), entry("a", 1)]);
  expect(lanes.map(([base, lane]) => [base, lane.map((one) => one.session)])).toEqual([
    ["dev", ["x"]],
    ["main", ["a", "b"]],
  ]);
});

test("speculation is told with what it stands on", () => {
  const text = trying(entry("b", 2, { state: "checking", ahead: ["a"], tree: "0123456789abcdef", passedBy: ["c"] }));
  expect(text).toBe("is being checked on top of a, as tree 01234567; c goes before it");
});

test("of each session the last refusal is told, newest first", () => {
  const turned = droppedOf([failed(1, "a", { reason: "old" }), failed(2, "b"), failed(3, "a", { reason: "conflict", cause: "conflict" }), failed(4, null)]);
  expect(turned.map((one) => [one.session, one.reason])).toEqual([
    ["a", "conflict"],
    ["b", ""],
  ]);
});
