import { expect, test } from "vitest";

import { spent } from "./spent";

const point = (at: string, input: number, output: number, usd: number | null) => ({ at, input, output, usd });

test("tokens in and out are one line, dollars another", () =>
  expect(spent([point("2026-11-15T14:00:00Z", 100, 20, null), point("2026-11-15T14:01:00Z", 150, 30, 0.25)])).toEqual({
    at: [1794751200, 1794751260],
    tokens: [120, 180],
    usd: [null, 0.25],
  }));

test("without turns there is nothing", () => expect(spent([])).toEqual({ at: [], tokens: [], usd: [] }));
