import { expect, test } from "vitest";

import { EVERYTHING, fromQuery, intoQuery, matches, narrows } from "./filter";
import { pull, session } from "./made";

test("a filter goes into the address and comes back; what else is there stays", () => {
  const filter = { text: "log in", project: "app", agent: "demo", status: "ci_failed", group: "profile" } as const;
  const query = intoQuery(new URLSearchParams("column=done"), filter);
  expect(query.get("column")).toBe("done");
  expect(fromQuery(query)).toEqual(filter);
  expect(intoQuery(query, EVERYTHING).toString()).toBe("column=done");
});

test("a group that is none is none", () => expect(fromQuery(new URLSearchParams("group=moon")).group).toBe(""));

test.each([
  [{ text: "login FIX" }, true],
  [{ text: "logout" }, false],
  [{ text: "#7" }, true],
  [{ text: "waits for review" }, true],
  [{ project: "app" }, true],
  [{ project: "shop" }, false],
  [{ agent: "demo" }, true],
  [{ agent: "careful" }, true],
  [{ agent: "codex" }, false],
  [{ status: "review_pending" }, true],
  [{ status: "working" }, false],
])("%j finds it: %s", (change, found) => {
  const one = session({ status: "review_pending", profile: "careful", pr: pull() });
  expect(matches(one, { ...EVERYTHING, ...change })).toBe(found);
  expect(narrows({ ...EVERYTHING, ...change })).toBe(true);
});
