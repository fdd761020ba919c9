import { expect, test } from "vitest";

import { plainText } from "./ansi";

test.each([
  ["\x1b[1;31mred\x1b[0m", "red"],
  ["\x1b]0;<script>\x07title", "title"],
  ["\x1b]8;;https://x.example\x1b\\here\x1b]8;;\x1b\\", "here"],
  ["10 %\r50 %\r100 %\ndone\r\n", "100 %\ndone\n"],
  ["a\x00b\tc", "ab\tc"],
  ["\x1b(Bplain", "plain"],
])("%j reads %j", (printed, text) => expect(plainText(printed)).toBe(text));
