import { expect, test } from "vitest";

import { arrows, withControl } from "./keys";

test.each([
  ["c", "\x03"],
  ["C", "\x03"],
  ["[", "\x1b"],
  [" ", "\0"],
  ["é", "é"],
  ["dx", "\x04x"],
])("Ctrl and %j is %j", (typed, bytes) => expect(withControl(typed)).toBe(bytes));

test("arrows follow the program's mode", () => {
  expect(arrows("\x1b[A", true)).toBe("\x1bOA");
  expect(arrows("\x1b[A", false)).toBe("\x1b[A");
  expect(arrows("\x1b", true)).toBe("\x1b");
});
