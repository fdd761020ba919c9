import { expect, test } from "vitest";

import { filesOf, openAtFirst, seen, type FileChange } from "./patch";

const PATCH = `diff --git a/shop/price.py b/shop/price.py
index 1..2 100644
--- a/shop/price.py
+++ b/shop/price.py
@@ -1,2 +1,3 @@
 def total(prices):
-    return int(sum(prices))
+    return round(sum(prices), 2)
+    # --- not a header
diff --git a/old.txt b/new.txt
similarity index 90%
rename from old.txt
rename to new.txt
--- a/old.txt
+++ b/new.txt
@@ -1 +1 @@
-a
+b
diff --git a/moved here.txt b/moved there.txt
similarity index 100%
rename from moved here.txt
rename to moved there.txt
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-diff --git a/fake b/fake
diff --git a/logo.png b/logo.png
new file mode 100644
Binary files /dev/null and b/logo.png differ
diff --git "a/caf\\303\\251.md" "b/caf\\303\\251.md"
new file mode 100644
--- /dev/null
+++ "b/caf\\303\\251.md"
@@ -0,0 +1 @@
+x
`;

test("a patch is cut into its files", () =>
  expect(filesOf(PATCH).map(({ text: _, ...file }) => file)).toEqual([
    { path: "shop/price.py", before: null, kind: "changed", added: 2, removed: 1 },
    { path: "new.txt", before: "old.txt", kind: "renamed", added: 1, removed: 1 },
    { path: "moved there.txt", before: "moved here.txt", kind: "renamed", added: 0, removed: 0 },
    { path: "gone", before: null, kind: "deleted", added: 0, removed: 1 },
    { path: "logo.png", before: null, kind: "binary", added: 0, removed: 0 },
    { path: "café.md", before: null, kind: "added", added: 1, removed: 0 },
  ]));

test("nothing changed has no files", () => expect(filesOf("")).toEqual([]));

test("what nobody sees is written as its number, and all else stays", () => {
  expect(seen('"user\u202e \u2066// admins\u2069"\u200b\u{e0041}\r;')).toBe('"user⟦U+202E⟧ ⟦U+2066⟧// admins⟦U+2069⟧"⟦U+200B⟧⟦U+E0041⟧⟦U+000D⟧;');
  expect(seen("\tשלום, 👩‍💻 café ✔️\r\n")).toBe("\tשלום, 👩‍💻 café ✔️\r\n");
});

const file = (path: string, added: number, kind: FileChange["kind"] = "changed"): FileChange => ({ path, before: null, kind, added, removed: 0, text: "" });

test("long files and binary ones stay folded, short ones open until it is enough", () => {
  const files = [file("long", 20_000), file("a", 490), file("b", 490), file("c", 490), file("d", 490), file("e", 10), file("p.png", 0, "binary")];
  expect([...openAtFirst(files)]).toEqual(["a", "b", "c", "e"]);
});
