import { expect, test } from "vitest";

import { opening } from "./links";

test.each([
  ["https://example.org/a?b", "https://example.org/a?b", "open"],
  ["http://127.0.0.1:4000", "http://127.0.0.1:4000", "open"],
  ["https://evil.example", "https://good.example", "ask"],
  ["https://good.example@evil.example/", "https://good.example@evil.example/", "ask"],
  ["javascript:alert(1)", "javascript:alert(1)", "refuse"],
  ["file:///etc/passwd", "file:///etc/passwd", "refuse"],
  ["vscode://file/x", "vscode://file/x", "refuse"],
  ["not an address", "not an address", "refuse"],
])("%s shown as %s: %s", (uri, shown, then) => expect(opening(uri, shown)).toBe(then));
