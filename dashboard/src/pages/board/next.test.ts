import { expect, test } from "vitest";

import type { BoardSession } from "../../api/types";
import { check, pull, question, session } from "./made";
import { nextAction } from "./next";
import { STATUSES } from "./words";

/** Every status, and what a person would do next with a session of it that asks nothing. */
const EXPECTED: [status: string, change: Partial<BoardSession>, kind: string, label?: string][] = [
  ["merged", { column: "Done" }, "none"],
  ["stopped", { column: "Done" }, "restore", "Restore"],
  ["closed", { column: "Done" }, "none"],
  ["queued", { waitingFor: "a free place" }, "none"],
  ["queued", { waitingFor: "its first message" }, "reply", "Give it its task"],
  ["starting", {}, "none"],
  ["needs_input", { column: "Needs you" }, "reply", "Answer"],
  ["blocked", { column: "Needs you" }, "open", "Look at its terminal"],
  ["failed", { column: "Needs you", pid: null }, "restore", "Restore"],
  ["stuck", { column: "Needs you" }, "open", "Look at its terminal"],
  ["interrupted", { column: "Needs you", pid: null }, "restore", "Restore"],
  ["interrupted", { column: "Needs you" }, "reply", "Send a message"],
  ["not_set_up", { column: "Needs you" }, "rerun", "Run the checks again"],
  ["merging", {}, "none"],
  ["working", {}, "none"],
  ["limited", {}, "none"],
  ["conflicted", {}, "none"],
  ["conflicted", { column: "Needs you" }, "fix", "Ask to resolve"],
  ["ci_failed", { pr: pull({ checks: [check("lint", "failure")] }) }, "none"],
  ["ci_failed", { column: "Needs you", pr: pull({ checks: [check("lint", "failure")] }) }, "fix", "Ask to fix"],
  ["ci_failed", { column: "Needs you", pr: pull() }, "rerun", "Run the checks again"],
  ["changes_requested", {}, "none"],
  ["changes_requested", { column: "Needs you" }, "fix", "Ask to address"],
  ["ci_running", { column: "In review" }, "none"],
  ["review_pending", { column: "In review" }, "open", "Review"],
  ["pr_open", { column: "In review" }, "open", "Review"],
  ["approved", { column: "Ready to merge" }, "merge", "Merge"],
  ["mergeable", { column: "Ready to merge" }, "merge", "Merge"],
  ["exited", { column: "Needs you", pid: null }, "restore", "Restore"],
  ["idle", { column: "Needs you" }, "open", "Look at it"],
  ["idle", { column: "Needs you", pr: pull() }, "open", "Review"],
];

test.each(EXPECTED)("%s with %j leads to %s", (status, change, kind, label) => {
  const next = nextAction(session({ status, ...change }), undefined);
  expect(next.kind).toBe(kind);
  expect("label" in next ? next.label : undefined).toBe(label);
});

test("every status has its next thing", () => {
  expect(new Set(EXPECTED.map(([status]) => status))).toEqual(new Set(STATUSES));
});

test("the message that asks to fix names what fails", () => {
  const next = nextAction(session({ status: "ci_failed", column: "Needs you", pr: pull({ checks: [check("lint", "failure"), check("unit", "success"), check("e2e", "failure", { onBase: true })] }) }), undefined);
  expect(next.kind === "fix" && next.message).toBe("These checks still fail: lint. Please read their output, fix the cause, and commit.");
});

test.each([
  ["question", "answer"],
  ["permission", "approve"],
  ["message", "release"],
  ["offer", "offer"],
] as const)("what a %s asks for comes before what the status does", (kind, expected) => {
  expect(nextAction(session({ status: "failed", column: "Needs you" }), question({ kind })).kind).toBe(expected);
});

test("an offer to merge what is ready is its Merge button", () => {
  const offer = question({ kind: "offer", offer: "o-1", text: "approved-and-green: merge?" });
  expect(nextAction(session({ status: "mergeable", column: "Ready to merge" }), offer).kind).toBe("merge");
  expect(nextAction(session({ status: "ci_failed", column: "Needs you" }), offer)).toMatchObject({ kind: "offer", label: "Merge" });
});
