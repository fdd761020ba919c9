import { expect, test } from "vitest";

import { withoutCookie } from "./loopback";

test.each([
  ["http://127.0.0.1:5173", "127.0.0.1", "http://localhost:5173/"],
  ["http://127.0.0.1:5173/a?b#c", "127.0.0.1", "http://localhost:5173/a?b#c"],
  ["http://localhost:5173/", "localhost", "http://127.0.0.1:5173/"],
  ["http://127.0.0.1:5173", "localhost", "http://127.0.0.1:5173"],
  ["http://127.0.0.1:5173", "box.example", "http://127.0.0.1:5173"],
  ["https://box.example:5173/", "box.example", "https://box.example:5173/"],
])("%s from a page of %s", (uri, here, opened) => {
  expect(withoutCookie(uri, here)).toBe(opened);
});
