import { expect, test } from "vitest";

import type { TimelineEntry } from "../../../api/types";
import { chains, isLong } from "./chains";

let seq = 0;
const entry = (kind: TimelineEntry["kind"], trigger: string | null, message: string | null = null): TimelineEntry => {
  seq += 1;
  return { seq, at: "2026-11-15T14:00:00Z", kind, title: kind, detail: null, trigger, message, by: "daemon" };
};
const kinds = (entries: TimelineEntry[]) => chains(entries).map((chain) => chain.entries.map((one) => one.kind));

test("what was seen, decided, sent and acknowledged is one chain, whatever came in between", () =>
  expect(
    kinds([
      entry("seen", "ci-failed"),
      entry("decided", "ci-failed"),
      entry("said", null),
      entry("sent", "ci-failed", "m-1"),
      entry("acknowledged", null, "m-1"),
    ]),
  ).toEqual([["seen", "decided", "sent", "acknowledged"], ["said"]]));

test("seen again is a new chain", () =>
  expect(
    kinds([entry("seen", "ci-failed"), entry("sent", "ci-failed", "m-2"), entry("seen", "ci-failed"), entry("sent", "ci-failed", "m-3"), entry("acknowledged", null, "m-3")]),
  ).toEqual([
    ["seen", "sent"],
    ["seen", "sent", "acknowledged"],
  ]));

test("a late acknowledgement joins its own message's chain", () =>
  expect(kinds([entry("sent", null, "m-4"), entry("sent", null, "m-5"), entry("acknowledged", null, "m-4")])).toEqual([["sent", "acknowledged"], ["sent"]]));

test("steps that were written down at one moment are told in their order", () =>
  expect(kinds([entry("sent", "agent-blocked"), entry("decided", "agent-blocked")])).toEqual([["decided", "sent"]]));

test("what belongs to nothing stands alone, in order", () => expect(kinds([entry("did", null), entry("said", null)])).toEqual([["did"], ["said"]]));

test("long details are folded", () => {
  expect(isLong("short")).toBe(false);
  expect(isLong("x".repeat(300))).toBe(true);
  expect(isLong("1\n2\n3\n4\n5")).toBe(true);
});
