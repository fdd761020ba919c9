import { expect, test } from "vitest";

import { terms } from "./rules";

const NONE = { retries: null, escalateAfter: null, threshold: null, delay: null, condition: null };

test("a rule without terms says nothing", () => expect(terms(NONE)).toBe(""));
test("retries and escalation by count", () => expect(terms({ ...NONE, retries: 1, escalateAfter: 2 })).toBe("1 retry, calls you after 2 attempts"));
test("durations are whole units", () =>
  expect(terms({ ...NONE, escalateAfter: "30m", threshold: 600, delay: 20, condition: "x" })).toBe("calls you after 30m, after 10 min, waits 20 s, if x"));
test("no delay is not told", () => expect(terms({ ...NONE, delay: 0 })).toBe(""));
