import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";

import { queries } from "../../../api/queries";
import { check, pull, session } from "../../board/made";
import { Checks } from "./checks";

afterEach(() => {
  cleanup();
  queries.clear();
  vi.unstubAllGlobals();
});

test("a check that fails without the change too says so", () => {
  vi.stubGlobal("fetch", async () => Response.json({ failing: [] }));
  const checks = [check("lint", "failure", true), check("unit", "failure"), check("docs", "success")];
  render(
    <QueryClientProvider client={queries}>
      <Checks session={session({ pr: pull({ checks }) })} />
    </QueryClientProvider>,
  );
  const said = screen.getAllByRole("button").map((button) => button.textContent);
  expect(said).toEqual(["▶lint✕ Failed, without the change too", "▶unit✕ Failed", "▶docs✓ Passed"]);
});
