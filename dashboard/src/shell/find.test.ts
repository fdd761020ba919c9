import { expect, test } from "vitest";

import { found, type Entry } from "./find";

const entry = (label: string, hint = ""): Entry => ({ id: label, label, hint, run: () => undefined });
const labels = (entries: Entry[]) => entries.map((one) => one.label);
const ALL = [entry("Reset the cache", "working"), entry("Fix the login", "needs you"), entry("Cache images", "done")];

test("without a word everything is offered in its order", () => expect(labels(found(ALL, " "))).toEqual(labels(ALL)));
test("a beginning goes before the beginning of a word", () => expect(labels(found(ALL, "cache"))).toEqual(["Cache images", "Reset the cache"]));
test("every word must occur, in the label or the hint", () => expect(labels(found(ALL, "needs log"))).toEqual(["Fix the login"]));
test("signs that mean something in patterns are letters here", () => expect(found([entry("a (b")], "(b")).toHaveLength(1));
