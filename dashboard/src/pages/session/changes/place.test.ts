import { expect, test } from "vitest";

import type { Thread } from "../../../api/types";
import type { DraftComment } from "./draft";
import { linesOf, placed } from "./place";

const PATCH = `diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1,3 +1,3 @@ def x
 one
-two
+zwei
 three
@@ -10 +10,2 @@
 ten
+eleven
\\ No newline at end of file
`;

test("the shown lines of both sides", () => {
  const { additions, deletions } = linesOf(PATCH);
  expect([...additions]).toEqual([1, 2, 3, 10, 11]);
  expect([...deletions]).toEqual([1, 2, 3, 10]);
});

const thread = (path: string | null, line: number | null): Thread => ({ id: `${path}:${line}`, path, line, resolved: false, comments: [] });
const draft = (line: number | null, removed: number | null = null): DraftComment => ({ id: `d${line}${removed}`, path: "a.py", line, removed, body: "b" });

test("notes stand at their lines, the others above the file, those of other files nowhere here", () => {
  const { inside, above } = placed("a.py", linesOf(PATCH), [thread("a.py", 2), thread("a.py", 7), thread("b.py", 2), thread(null, null)], [draft(2), draft(null, 2), draft(null)]);
  expect(inside.map((one) => [one.side, one.lineNumber, one.metadata.length])).toEqual([
    ["additions", 2, 2],
    ["deletions", 2, 1],
  ]);
  expect(above.map((note) => (note.kind === "thread" ? note.thread.id : note.comment.id))).toEqual(["a.py:7", "dnullnull"]);
});
