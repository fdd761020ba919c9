import { expect, test } from "vitest";

import { kept, moved } from "./move";

const COLUMNS = [["a", "b", "c"], [], ["d"], ["e", "f"]];

test.each([
  ["a", "down", "b"],
  ["c", "down", "c"],
  ["a", "up", "a"],
  ["c", "right", "d"],
  ["d", "right", "e"],
  ["f", "left", "d"],
  ["a", "left", "a"],
  ["f", "right", "f"],
  [null, "down", "a"],
  ["gone", "left", "a"],
] as const)("from %s %s is %s", (from, direction, to) => expect(moved(COLUMNS, from, direction)).toBe(to));

test("nothing leads nowhere", () => expect(moved([[], []], null, "down")).toBeNull());

test("the card that was meant stays meant while it is there", () => {
  expect(kept(COLUMNS, "f")).toBe("f");
  expect(kept(COLUMNS, "gone")).toBe("a");
  expect(kept([[]], "gone")).toBeNull();
});
