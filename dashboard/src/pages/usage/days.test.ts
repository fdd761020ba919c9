import { expect, test } from "vitest";

import type { StatsDay } from "../../api/types";
import { byDay, retriesOf } from "./days";

const day = (name: string, more: Partial<StatsDay> = {}): StatsDay => ({
  day: name,
  started: 0,
  opened: 0,
  landed: 0,
  medianToMerge: null,
  retries: {},
  input: 0,
  output: 0,
  cacheRead: 0,
  cacheWrite: 0,
  usd: null,
  forgeCalls: 0,
  ...more,
});

test("every day is a bar, in order", () => {
  const bars = byDay([day("2026-11-14", { landed: 2 }), day("2026-11-15")], [["landed", "x", (one) => one.landed]]);
  expect(bars.map((bar) => [bar.at, bar.parts[0]!.value])).toEqual([
    ["2026-11-14", 2],
    ["2026-11-15", 0],
  ]);
});

test("retries add up over the days, the most frequent first", () => {
  const retries = retriesOf([day("2026-11-14", { retries: { "ci-failed": 1, "merge-conflicts": 2 } }), day("2026-11-15", { retries: { "ci-failed": 3 } })]);
  expect(retries).toEqual([
    ["ci-failed", 4],
    ["merge-conflicts", 2],
  ]);
});
