import { expect, test } from "vitest";

import { accountKey, accountLoad, figures, shares, whose } from "./allowance";

test("an account is released with its model, if only that is held", () => {
  expect(accountKey({ account: "work", model: null })).toBe("work");
  expect(accountKey({ account: "work", model: "opus" })).toBe("work opus");
});

test.each([
  [0, 0, "nobody at work"],
  [2, 0, "2 at work"],
  [0, 1, "1 waits"],
  [0, 3, "3 wait"],
  [1, 3, "1 at work, 3 waiting"],
])("%i at work and %i waiting: %s", (working, waiting, text) => expect(accountLoad({ working, waiting })).toBe(text));

test.each([
  [{ projects: ["app"], profile: null, name: "the day's budget of app" }, "app"],
  [{ projects: ["app"], profile: "docs", name: "the budget of docs" }, "docs in app"],
  [{ projects: ["app", "shop"], profile: null, name: "the day's budget of all projects" }, "All projects"],
  [{ projects: ["app"], profile: null, name: "the day's budget of all projects" }, "All projects"],
])("%j is of %s", (budget, text) => expect(whose(budget)).toBe(text));

test.each([
  [{ unit: "usd", budget: 10, spent: 2.5, reserved: 0.5 }, "$2.50 spent, $0.50 reserved of $10.00"],
  [{ unit: "tokens", budget: 2_000_000, spent: 0, reserved: 0 }, "0 spent of 2.0M tokens"],
  [{ unit: "usd", budget: 5, spent: null, reserved: null }, "$5.00 at most"],
] as const)("%j: %s", (budget, text) => expect(figures(budget)).toBe(text));

test.each([
  [{ budget: 10, spent: 5, reserved: 2 }, { spent: 50, reserved: 20 }],
  [{ budget: 10, spent: 9, reserved: 5 }, { spent: 90, reserved: 10 }],
  [{ budget: 10, spent: 20, reserved: 5 }, { spent: 100, reserved: 0 }],
  [{ budget: 0, spent: 0, reserved: 0 }, { spent: 100, reserved: 0 }],
  [{ budget: 5, spent: null, reserved: null }, { spent: 0, reserved: 0 }],
])("%j fills %j of its bar", (budget, filled) => expect(shares(budget)).toEqual(filled));
