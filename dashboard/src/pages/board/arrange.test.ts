import { expect, test } from "vitest";

import { arrange, calls, COLUMNS, coordinators, questionsOf } from "./arrange";
import { EVERYTHING } from "./filter";
import { question, session } from "./made";

const names = (groups: readonly { cards: readonly { session: { name: string } }[] }[]) => groups.flatMap((group) => group.cards.map((card) => card.session.name));

test("what needs a person stands by how long it waits, quiet ones last", () => {
  const waiting = [
    session({ name: "quiet", status: "idle", column: "Needs you", evidence: { source: "spool", at: "2026-11-15T08:00:00Z" } }),
    session({ name: "late", status: "needs_input", column: "Needs you" }),
    session({ name: "early", status: "failed", column: "Needs you", evidence: { source: "process", at: "2026-11-15T10:00:00Z" } }),
    session({ name: "called", status: "idle", column: "Needs you" }),
  ];
  const asked = questionsOf([question({ session: "app-late", since: "2026-11-15T11:00:00Z" }), question({ session: "app-called", kind: "message", since: "2026-11-15T09:00:00Z" })], new Map());
  expect(names(arrange(waiting, asked, EVERYTHING)[0]!.groups)).toEqual(["called", "early", "late", "quiet"]);
});

test("the newest of the done ones stand first, the others in the order they were made", () => {
  const done = [session({ name: "old", column: "Done", updatedAt: "2026-11-15T10:00:00Z" }), session({ name: "new", column: "Done", updatedAt: "2026-11-15T11:00:00Z" })];
  const working = [session({ name: "second", createdAt: "2026-11-15T10:01:00Z", updatedAt: "2026-11-15T10:02:00Z" }), session({ name: "first", createdAt: "2026-11-15T10:00:00Z", updatedAt: "2026-11-15T10:09:00Z" })];
  const columns = arrange([...done, ...working], new Map(), EVERYTHING);
  expect(columns.map((column) => column.name)).toEqual(COLUMNS.map((column) => column.name));
  expect(names(columns[4]!.groups)).toEqual(["new", "old"]);
  expect(names(columns[1]!.groups)).toEqual(["first", "second"]);
});

test("cards are grouped by project, or by profile and else by agent", () => {
  const some = [session({ name: "a", project: "shop", profile: "careful" }), session({ name: "b" }), session({ name: "c", project: "shop" })];
  const by = (group: "project" | "profile") => arrange(some, new Map(), { ...EVERYTHING, group })[1]!.groups.map((one) => [one.title, one.cards.length]);
  expect(by("project")).toEqual([["app", 1], ["shop", 2]]);
  expect(by("profile")).toEqual([["careful", 1], ["demo", 2]]);
});

test("who coordinates stands above the columns, and in none of them", () => {
  const some = [
    session({ name: "b", project: "shop", kind: "coordinator" }),
    session({ name: "a", kind: "coordinator", status: "needs_input", column: "Needs you" }),
    session({ name: "gone", kind: "coordinator", status: "stopped", column: "Done" }),
    session({ name: "works" }),
  ];
  const asked = questionsOf([question({ session: "app-a" })], new Map());
  expect(arrange(some, asked, EVERYTHING).map((column) => column.count)).toEqual([0, 1, 0, 0, 0]);
  expect(coordinators(some, asked, "").map((card) => [card.session.name, card.questions.length])).toEqual([["a", 1], ["b", 0]]);
  expect(coordinators(some, asked, "shop").map((card) => card.session.name)).toEqual(["b"]);
});

test("questions that did not change stay the same object", () => {
  const before = questionsOf([question(), question({ session: "app-b" })], new Map());
  const after = questionsOf([question(), question({ session: "app-b", text: "And now?" })], before);
  expect(after.get("app-fix-login")).toBe(before.get("app-fix-login"));
  expect(after.get("app-b")).not.toBe(before.get("app-b"));
});

test("those call who ask or need a person, and not those who are merely finished", () => {
  const some = [
    session({ name: "a", status: "needs_input", column: "Needs you" }),
    session({ name: "b", status: "failed", column: "Needs you" }),
    session({ name: "c", status: "idle", column: "Needs you" }),
    session({ name: "d" }),
    session({ name: "e", status: "mergeable", column: "Ready to merge" }),
  ];
  const found = calls(some, [question({ session: "app-a" }), question({ session: "app-e", kind: "offer", offer: "o-1" }), question({ session: "app-gone" })]);
  expect([...found.values()].map((call) => call.session.name)).toEqual(["a", "e", "b"]);
});
