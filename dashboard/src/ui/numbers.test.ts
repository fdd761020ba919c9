import { expect, test } from "vitest";

import { dollars, span, tokens } from "./numbers";

test.each([
  [0, "$0.00"],
  [0.416, "$0.42"],
  [99.994, "$99.99"],
  [1234.5, "$1235"],
])("%d dollars read %s", (usd, text) => expect(dollars(usd)).toBe(text));

test.each([
  [0, "0"],
  [999, "999"],
  [1500, "2k"],
  [999_499, "999k"],
  [999_500, "1.0M"],
  [12_340_000, "12.3M"],
])("%d tokens read %s", (count, text) => expect(tokens(count)).toBe(text));

test.each([
  [12.4, "12 s"],
  [90, "2 min"],
  [5400, "1.5 h"],
  [172_800, "2 d"],
])("%d seconds read %s", (seconds, text) => expect(span(seconds)).toBe(text));
