import { expect, test } from "vitest";

import { check, pull, question, session } from "./made";
import { checkCount, lastLine, offered, offerWords, options, outward, questionKey, reason, reviewWord } from "./words";

test.each([
  ["Which database?\n1. SQLite\n2. PostgreSQL", ["SQLite", "PostgreSQL"]],
  ["Pick one:\n- red\n- blue\n\nI would take red.", ["red", "blue"]],
  ["(a) keep it\n(b) drop it", ["keep it", "drop it"]],
  ["Shall I go on? [y/N]", ["Yes", "No"]],
  ["Continue (yes/no):", ["Yes", "No"]],
  ["Which database?", []],
  ["1. only one", []],
  ["- one\nand a word\n- two", []],
  ["- same\n- same", []],
  [`- short\n- ${"long ".repeat(20)}`, []],
  ["I did\n1. a\n2. b\n3. c\n4. d\n5. e\n6. f\n7. g", []],
])("%j lists %j", (text, listed) => expect(options(text)).toEqual(listed));

test("checks are counted, and those that fail are named", () => {
  const checks = [check("unit", "success"), check("e2e", "flaky"), check("lint", "failure"), check("slow", "timed_out"), check("docs", "running"), check("os", "skipped")];
  expect(checkCount(pull({ checks }))).toEqual({ passed: 2, running: 1, total: 6, failing: ["lint", "slow"], known: [], notSetUp: [], flaky: ["e2e"] });
  const theirs = [check("unit", "failure", { onBase: true }), check("docs", "success"), check("lint", "failure")];
  expect(checkCount(pull({ checks: theirs }))).toMatchObject({ passed: 1, total: 3, failing: ["lint"], known: ["unit"] });
  expect(checkCount(pull({ checks: [check("unit", "not_set_up")] }))).toMatchObject({ failing: [], notSetUp: ["unit"] });
  expect(checkCount(pull())).toBeNull();
  expect(checkCount(null)).toBeNull();
});

test("an offer's action is its button", () => {
  expect(offered(question({ text: "ci-failed: send-to-agent?" }))).toEqual({ action: "send-to-agent", label: "Send to the agent", refusal: "Not now" });
  expect(offered(question({ text: "dependency-failed: start?" }))).toMatchObject({ label: "Start it all the same", refusal: "Stop it" });
  expect(offered(question({ text: "Shall we?" })).label).toBe("Do it");
});

test("what a budget or a dependency asks is said in words", () => {
  const asks = (text: string) => question({ kind: "offer", text, context: ["3 USD spent of 2 USD a session", "more"] });
  expect(offerWords(asks("budget-exceeded: raise-budget?"))).toBe("3 USD spent of 2 USD a session");
  expect(offered(asks("budget-exceeded: raise-budget?"))).toMatchObject({ label: "Let it use as much again", refusal: "Leave it stopped" });
  expect(offerWords(asks("ci-failed: send-to-agent?"))).toBeNull();
});

test.each([
  ["https://github.com/o/r/pull/7", "https://github.com/o/r/pull/7"],
  ["javascript:alert(1)", null],
  ["file:///etc/passwd", null],
  [null, null],
])("%s leads to %s", (url, to) => expect(outward(url)).toBe(to));

test("a question is the same however its context changes, and another once it is asked anew", () => {
  expect(questionKey(question({ context: ["x"] }))).toBe(questionKey(question()));
  expect(questionKey(question({ since: "2026-11-15T12:01:00Z" }))).not.toBe(questionKey(question()));
});

test("a card does not say twice what its question says", () => {
  const asks = session({ status: "needs_input", column: "Needs you", why: "asks: Which database?" });
  expect(reason(asks, true)).toBeNull();
  expect(reason(asks, false)).toBe("asks: Which database?");
  expect(reason(session(), false)).toBeNull();
  expect(reason(session({ why: "retries after an error" }), false)).toBe("retries after an error");
  expect(reason(session({ status: "review_pending", why: "pull request #7 waits for a review" }), false)).toBeNull();
  expect(reason(session({ status: "review_pending", why: "pull request #7 waits for a review; bot approved abc" }), false)).toBe("bot approved abc");
});

test("a card ends with what its agent said, or printed last if it ended badly", () => {
  const progress = { done: 1, total: 2, step: "reading", testsPassed: null };
  expect(lastLine(session({ says: "Hello" }), [])).toEqual({ text: "Hello", printed: false });
  expect(lastLine(session({ says: "reading", progress }), [])).toBeNull();
  expect(lastLine(session({ says: "Which database?" }), [question()])).toBeNull();
  expect(lastLine(session({ status: "failed", says: "x", lastOutput: "one\nKeyError: 1\n\n" }), [])).toEqual({ text: "KeyError: 1", printed: true });
});

test("a review is named where the status does not name it", () => {
  expect(reviewWord(session({ status: "ci_running", pr: pull({ review: "approved" }) }))).toBe("Approved");
  expect(reviewWord(session({ status: "approved", pr: pull({ review: "approved" }) }))).toBeNull();
  expect(reviewWord(session({ status: "merged", pr: pull({ review: "approved", state: "merged" }) }))).toBeNull();
});

test("at a usage limit it is said until when", () => {
  expect(reason(session({ status: "limited", why: "the account's usage limit is reached", waitingFor: "the limit's reset at 2026-11-16T03:00:00Z" }), false)).toBe("waits for the limit's reset at 2026-11-16T03:00:00Z");
});
