import { expect, test } from "vitest";

import type { Question } from "../../api/types";
import { questionsOf } from "./questions";

const question = (session: string): Question => ({ session, kind: "question", text: "?", request: null, permission: null, message: null, offer: null, since: "2026-11-15T14:00:00Z", context: [] });

test("a session has its own questions, and the same list until they change", () => {
  const board = { questions: [question("a"), question("b"), question("a")] };
  expect(questionsOf(board, "a")).toHaveLength(2);
  expect(questionsOf(board, "a")).toBe(questionsOf(board, "a"));
  expect(questionsOf(board, "c")).toBe(questionsOf(board, "c"));
  expect(questionsOf({ questions: [question("b")] }, "a")).toEqual([]);
});
