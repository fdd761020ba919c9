import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";

import { queries } from "../../../api/queries";
import type { ChangeCheck, FailingCheck } from "../../../api/types";
import { check, pull, session } from "../../board/made";
import { Checks } from "./checks";

afterEach(() => {
  cleanup();
  queries.clear();
  vi.unstubAllGlobals();
});

const shown = (failing: Partial<FailingCheck>[], ...checks: ChangeCheck[]) => {
  vi.stubGlobal("fetch", async () => Response.json({ failing }));
  render(
    <QueryClientProvider client={queries}>
      <Checks session={session({ pr: pull({ checks }) })} />
    </QueryClientProvider>,
  );
};

const explained = (change: Partial<FailingCheck>): FailingCheck => ({
  ...check("unit", "failure"),
  summary: "",
  log: "",
  newFailures: [],
  knownFailures: [],
  ownedFailures: [],
  vanished: [],
  newlySkipped: [],
  fewer: 0,
  remedy: null,
  command: null,
  ...change,
});

test("a check shows its tests, and whether it fails as on the base branch", () => {
  shown([], check("lint", "failure", { onBase: true, known: 1 }), check("unit", "failure", { passed: 257, failed: 40, new: 2, known: 38 }), check("docs", "success"));
  const said = screen.getAllByRole("button").map((button) => button.textContent);
  expect(said).toEqual(["▶lint✕ Failed, as on main1 known on main", "▶unit✕ Failed257 passed, 40 failed (2 new, 38 known on main)", "▶docs✓ Passed"]);
});

test("a failing check lists its failures by kind, the output and the command to run it by hand", async () => {
  const newFailures = [{ name: "b.py::test_b", message: "assert 4 == 5" }];
  shown([explained({ newFailures, knownFailures: ["a.py::test_a"], summary: "E assert 4 == 5", command: "pytest -q" })], check("unit", "failure"));
  expect(await screen.findByText("b.py::test_b: assert 4 == 5")).toBeTruthy();
  expect(screen.getByText("Also failing on main (1)")).toBeTruthy();
  expect(screen.getByText("E assert 4 == 5")).toBeTruthy();
  expect(screen.getByText("pytest -q")).toBeTruthy();
});

test("a check whose environment is not set up says what is missing and what to do", async () => {
  shown([explained({ state: "not_set_up", reason: "module humanize not found", remedy: "Set postCreate" })], check("unit", "not_set_up"));
  expect(await screen.findByText("module humanize not found. Set postCreate")).toBeTruthy();
  expect(screen.getByRole("button", { name: /Environment not set up/ })).toBeTruthy();
});
