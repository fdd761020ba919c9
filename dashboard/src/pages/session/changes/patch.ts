/** A patch cut into its files, without reading their lines further than to count them: what is not opened costs nothing. */
export interface FileChange {
  path: string;
  before: string | null;
  kind: "added" | "deleted" | "renamed" | "changed" | "binary";
  added: number;
  removed: number;
  /** The file's part of the patch. */
  text: string;
}

export function filesOf(patch: string): FileChange[] {
  return patch
    .split(/^(?=diff --git )/m)
    .filter((part) => part.startsWith("diff --git "))
    .map(fileOf);
}

function fileOf(text: string): FileChange {
  const start = text.search(/^@@ /m);
  const head = start < 0 ? text : text.slice(0, start);
  const old = nameAfter(head, "--- ") ?? named(head, "rename from ");
  const next = nameAfter(head, "+++ ") ?? named(head, "rename to ");
  const path = next ?? old ?? fromFirstLine(head);
  let added = 0;
  let removed = 0;
  for (const line of start < 0 ? [] : text.slice(start).split("\n")) {
    if (line.startsWith("+")) added += 1;
    else if (line.startsWith("-")) removed += 1;
  }
  return { path, before: old !== null && old !== path ? old : null, kind: kindOf(head, old, path), added, removed, text };
}

function kindOf(head: string, old: string | null, path: string): FileChange["kind"] {
  if (/^(Binary files|GIT binary patch)/m.test(head)) return "binary";
  if (/^new file mode/m.test(head)) return "added";
  if (/^deleted file mode/m.test(head)) return "deleted";
  return old !== null && old !== path ? "renamed" : "changed";
}

function named(head: string, prefix: string): string | null {
  const line = head.split("\n").find((one) => one.startsWith(prefix));
  return line === undefined ? null : unquoted(line.slice(prefix.length).replace(/[\t\r]+$/, ""));
}

/** The name on a `---` or `+++` line, without Git's a/ or b/. */
function nameAfter(head: string, prefix: string): string | null {
  const name = named(head, prefix);
  return name === null || name === "/dev/null" ? null : name.replace(/^[ab]\//, "");
}

/** `diff --git a/x b/x`, where nothing else names the file: both names are the same there. */
function fromFirstLine(head: string): string {
  const both = head.slice("diff --git ".length, head.indexOf("\n") < 0 ? undefined : head.indexOf("\n"));
  if (both.startsWith('"')) return unquoted(both.slice(0, both.indexOf('"', 1) + 1)).replace(/^a\//, "");
  return both.slice(0, (both.length - 1) / 2).replace(/^a\//, "");
}

/** Git quotes names with special letters: "a/caf\303\251". */
function unquoted(name: string): string {
  if (!name.startsWith('"')) return name;
  const bytes: number[] = [];
  const inner = name.slice(1, -1);
  for (let at = 0; at < inner.length; at += 1) {
    const octal = inner[at] === "\\" ? /^[0-7]{3}/.exec(inner.slice(at + 1)) : null;
    if (octal) {
      bytes.push(Number.parseInt(octal[0], 8));
      at += 3;
    } else if (inner[at] === "\\") {
      at += 1;
      bytes.push(...new TextEncoder().encode({ n: "\n", t: "\t" }[inner[at] ?? ""] ?? inner[at]));
    } else bytes.push(...new TextEncoder().encode(inner[at]));
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}

/* Control characters, those that turn the direction of text, zero widths, fillers, tags: as `ao diff` has them. */
const UNSEEN =
  /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|\r(?!\n)/gu;

/** Text of somebody else's in which nothing is hidden from who judges it: what nobody sees is written as its number. */
export const seen = (text: string): string => text.replace(UNSEEN, (one) => `⟦U+${(one.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟧`);

const MOST_OPEN_LINES = 1500;
const MOST_LINES_OF_ONE = 500;

/** Which files are open when the page comes: as many small ones as one reads in one go. */
export function openAtFirst(files: readonly FileChange[]): Set<string> {
  const open = new Set<string>();
  let lines = 0;
  for (const file of files) {
    const size = file.added + file.removed;
    if (size > MOST_LINES_OF_ONE || file.kind === "binary" || lines + size > MOST_OPEN_LINES) continue;
    lines += size;
    open.add(file.path);
  }
  return open;
}
