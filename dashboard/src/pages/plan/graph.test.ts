import { expect, test } from "vitest";

import type { BoardSession, Task } from "../../api/types";
import { graphOf, takenBy, whoTakes } from "./graph";

const task = (id: string, after: string[] = []): Task => ({
  id,
  project: "p",
  title: id,
  description: "",
  issue: null,
  labels: [],
  priority: 0,
  after,
  sessions: [`s-${id}`],
  createdAt: "2026-11-15T12:00:00Z",
});
const sessions = (...some: [id: string, column: string, collides?: string[]][]) =>
  new Map(
    some.map(([id, column, collides = []]) => [
      `s-${id}`,
      { id: `s-${id}`, column, collides: collides.map((other) => ({ session: `s-${other}`, kind: "text", files: [] })) } as unknown as BoardSession,
    ]),
  );
const places = (graph: ReturnType<typeof graphOf>) => Object.fromEntries(graph.nodes.map((node) => [node.task.id, [node.column, node.row]]));

test("what comes after stands further right", () => {
  const graph = graphOf([task("a"), task("b", ["a"]), task("c", ["a", "b"]), task("d")], sessions());
  expect(places(graph)).toEqual({ a: [0, 0], b: [1, 0], c: [2, 0] });
  expect([graph.columns, graph.rows]).toEqual([3, 1.25]);
  expect(graph.between("a", "c")).toMatchObject([{ column: 1, row: 1 }]);
  expect(graph.free.map((node) => node.task.id)).toEqual(["d"]);
});

test("finished tasks are left out unless an open one comes after them", () => {
  const graph = graphOf([task("a"), task("b"), task("c", ["b"])], sessions(["a", "Done"], ["b", "Done"], ["c", "Working"]));
  expect(graph.nodes.map((node) => node.task.id)).toEqual(["b", "c"]);
});

test("who coordinates has no place among the tasks", () => {
  const known = sessions(["a", "Working"], ["b", "Working"]);
  known.get("s-a")!.kind = "coordinator";
  expect(graphOf([task("a"), task("b")], known).free.map((node) => node.task.id)).toEqual(["b"]);
});

test("a predicted conflict is one line", () => {
  const graph = graphOf([task("a"), task("b")], sessions(["a", "Working", ["b"]], ["b", "Working", ["a"]]));
  expect(graph.edges).toEqual([{ from: "a", to: "b", kind: "conflict" }]);
});

test("a circle, which no plan should have, does not hang the page", () => {
  expect(graphOf([task("a", ["b"]), task("b", ["a"])], sessions()).nodes).toHaveLength(2);
});

test("a dependency that is not known is no line", () => expect(graphOf([task("a", ["gone"])], sessions()).edges).toEqual([]));

test.each([
  ["app", "12", "Working", true],
  ["app", "#12", "Needs you", true],
  ["app", "12", "Done", false],
  ["app", "1", "Working", false],
  ["other", "12", "Working", false],
  ["app", null, "Working", false],
])("issue 12 of app with a session of %s on %s that is %s", (project, issue, column, taken) =>
  expect(takenBy([{ project, issue, column } as BoardSession], { project: "app", issue: 12 })).toBe(taken),
);

test.each([
  [{ profile: "docs", agent: "demo", matchedBy: "labels docs", ready: true, reasons: [] }, "docs would take it (labels docs)"],
  [{ profile: null, agent: "demo", matchedBy: "it is the project's agent", ready: false, reasons: ["issue 3 is open"] }, "demo would take it (it is the project's agent); issue 3 is open"],
  [{ profile: null, agent: null, matchedBy: null, ready: false, reasons: ["no profile takes its labels (x)"] }, "no profile takes its labels (x)"],
  [{ profile: null, agent: "demo", matchedBy: null, ready: true, reasons: ["autoAssign is off: take it by ao new 1"] }, "demo would take it"],
])("%j", (entry, text) => expect(whoTakes(entry)).toBe(text));
