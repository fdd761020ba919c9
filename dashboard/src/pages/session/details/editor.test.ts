import { expect, test } from "vitest";

import { editorLink } from "./editor";

test.each([
  ["/home/a b/w#1", "vscode://file/home/a%20b/w%231"],
  ["C:\\work\\app", "vscode://file/C:/work/app"],
])("%s opens as %s", (folder, link) => expect(editorLink(folder)).toBe(link));
