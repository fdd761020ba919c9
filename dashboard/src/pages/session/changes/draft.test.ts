import { expect, test } from "vitest";

import { asReview, emptied, without, written, type DraftComment } from "./draft";

const comment = (id: string, body: string, more: Partial<DraftComment> = {}): DraftComment => ({ id, path: "a.py", line: 3, removed: null, body, ...more });

test("comments are written, written anew and taken back", () => {
  const one = written(emptied(), comment("1", "first"));
  const two = written(written(one, comment("2", "second")), comment("1", "changed"));
  expect(two.comments.map((each) => each.body)).toEqual(["second", "changed"]);
  expect(without(two, "1").comments.map((each) => each.id)).toEqual(["2"]);
});

test("all comments are one review; empty ones are left out", () =>
  expect(asReview({ body: " Good. ", comments: [comment("1", " x "), comment("2", "  "), comment("3", "why?", { line: null, removed: 9 })] }, "changes_requested")).toEqual({
    verdict: "changes_requested",
    body: "Good.",
    comments: [
      { path: "a.py", line: 3, body: "x" },
      { path: "a.py", line: null, body: "Removed line 9: why?" },
    ],
  }));
