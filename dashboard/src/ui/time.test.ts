import { expect, test } from "vitest";

import { clock, spoken } from "./time";

test("a time within words is told as people tell it, today by the clock alone", () => {
  const at = new Date().toISOString();
  expect(spoken(`no other starts before ${at}; this one goes on then`)).toBe(`no other starts before ${clock(at)}; this one goes on then`);
  expect(spoken("until 2020-02-03T04:05:06Z")).toMatch(/2020/);
  expect(spoken("Committed 9e7bd59 on 2020-02-03")).toBe("Committed 9e7bd59 on 2020-02-03");
});
