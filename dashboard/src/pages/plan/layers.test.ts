import { expect, test } from "vitest";

import { layered, type Ordered } from "./layers";

const item = (id: string, ...after: string[]): Ordered => ({ id, after });
const at = (items: Ordered[]) => {
  const { places } = layered(items);
  return Object.fromEntries(items.map(({ id }) => [id, [places.get(id)!.column, places.get(id)!.row]]));
};

test("what comes after stands further right than all that it comes after", () => {
  expect(at([item("a"), item("b", "a"), item("c", "a", "b"), item("d")])).toEqual({ a: [0, 0], d: [0, 1], b: [1, 0], c: [2, 0] });
});

test("what comes after the upper one stands above what comes after the lower one", () => {
  expect(at([item("a"), item("b"), item("after-b", "b"), item("after-a", "a")])).toMatchObject({ "after-a": [1, 0], "after-b": [1, 1] });
});

test("a line over several columns has places of its own, shared by all lines from there", () => {
  const { places, between, rows } = layered([item("a"), item("b", "a"), item("c", "b"), item("d", "c", "a"), item("e", "c", "a")]);
  const way = between("a", "d");
  expect(way.map(({ column }) => column)).toEqual([1, 2]);
  expect(between("a", "e")).toEqual(way);
  for (const place of way) expect([...["a", "b", "c", "d", "e"].map((id) => places.get(id))]).not.toContainEqual(place);
  expect(between("a", "b")).toEqual([]);
  expect(way.map(({ size }) => size)).toEqual([0.25, 0.25]);
  expect(rows).toBe(2);
});

test("columns and rows are counted", () => {
  const { columns, rows } = layered([item("a"), item("b"), item("c", "a")]);
  expect([columns, rows]).toEqual([2, 2]);
  expect(layered([])).toMatchObject({ columns: 0, rows: 0 });
});

test("what is not there counts for nothing", () => expect(at([item("a", "gone")])).toEqual({ a: [0, 0] }));

test("a circle does not hang the page", () => {
  expect(Object.keys(at([item("a", "b"), item("b", "a"), item("c", "c")]))).toHaveLength(3);
});

test("a long chain is as long as it is", () => {
  const items = Array.from({ length: 500 }, (_, index) => item(`t${index}`, ...(index ? [`t${index - 1}`] : [])));
  expect(layered(items).columns).toBe(500);
});
