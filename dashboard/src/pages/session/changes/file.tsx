/** One changed file: a line when folded; its lines, with what was said about them, when open. */
import { getFiletypeFromFileName, processFile, setLanguageOverride, type FileDiffMetadata, type SelectedLineRange } from "@pierre/diffs";
import { FileDiff } from "@pierre/diffs/react";
import { memo, useMemo, useState } from "react";

import type { Thread } from "../../../api/types";
import { useDark } from "../../../theme";
import { Button } from "../../../ui/button";
import { cx } from "../../../ui/cx";
import type { DraftComment } from "./draft";
import { bundledLanguages } from "./languages";
import { Notes } from "./notes";
import { linesOf, placed, type Note } from "./place";
import { seen, type FileChange } from "./patch";
import { THEMES } from "./themes";

export type Layout = "split" | "unified";

interface Props {
  id: string;
  file: FileChange;
  open: boolean;
  layout: Layout;
  /** It can be commented on: it is a pull request, open, and whoever looks may. */
  judging: boolean;
  threads: readonly Thread[];
  drafts: readonly DraftComment[];
  onOpen: (path: string, open: boolean) => void;
  onWrite: (comment: DraftComment) => void;
  onDrop: (comment: DraftComment) => void;
}

const KINDS: Record<FileChange["kind"], string | null> = { added: "new", deleted: "deleted", renamed: "renamed", changed: null, binary: "binary" };

/** Fits the diff into the page: our letters, our surfaces, and a button to comment that fingers can press. */
const CSS = `
:host, pre { --diffs-bg: var(--surface) !important; --diffs-addition-color-override: var(--ready); --diffs-deletion-color-override: var(--bad); }
:host { --diffs-font-size: 12px; --diffs-line-height: 19px; --diffs-font-family: ui-monospace, "SF Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
[data-line-annotation] { font-family: ui-sans-serif, system-ui, sans-serif; }
`;

export const fileId = (path: string): string => `file ${path}`;

export const ChangedFile = memo(function ChangedFile(props: Props) {
  const { file, open, onOpen } = props;
  const comments = props.threads.filter((one) => one.path === file.path && !one.resolved).length + props.drafts.filter((one) => one.path === file.path).length;
  const [asking, setAsking] = useState(false);
  const word = KINDS[file.kind];
  return (
    <section id={fileId(file.path)} aria-label={file.path} className="scroll-mt-[calc(var(--under-header)+0.5rem)] overflow-clip rounded-lg border border-line bg-surface">
      <div className="sticky top-(--under-header) z-2 flex items-center gap-1 border-b border-line bg-raised pr-2">
        <h3 className="min-w-0 flex-1">
          <button type="button" aria-expanded={open} onClick={() => onOpen(file.path, !open)} className="flex min-h-9 w-full min-w-0 items-center gap-2 px-3 text-left hover:text-accent">
            <span aria-hidden className={cx("text-xs text-ink-faint transition-transform", open && "rotate-90")}>
              ▶
            </span>
            <span className="min-w-0 truncate font-mono text-xs" title={seen(file.before ? `${file.before} → ${file.path}` : file.path)}>
              {file.before && <span className="text-ink-faint">{seen(file.before)} → </span>}
              {seen(file.path)}
            </span>
            {word && <span className="shrink-0 text-xs text-ink-faint">{word}</span>}
          </button>
        </h3>
        {comments > 0 && (
          <span className="shrink-0 rounded-full bg-needs-soft px-1.5 text-xs text-needs">
            {comments} {comments === 1 ? "comment" : "comments"}
          </span>
        )}
        <Counts file={file} />
        {props.judging && open && (
          <Button small look="quiet" aria-label={`Comment on ${file.path}`} aria-expanded={asking} onClick={() => setAsking(!asking)}>
            Comment
          </Button>
        )}
      </div>
      {open && asking && <AskLine {...props} onDone={() => setAsking(false)} />}
      {open && <Lines {...props} />}
    </section>
  );
});

export function Counts({ file }: { file: Pick<FileChange, "added" | "removed"> }) {
  return (
    <span className="shrink-0 font-mono text-xs tabular-nums">
      <span className="text-ready">
        +{file.added}
        <span className="sr-only"> lines added,</span>
      </span>{" "}
      <span className="text-bad">
        −{file.removed}
        <span className="sr-only"> removed</span>
      </span>
    </span>
  );
}

/** The way to a line for those without a mouse. */
function AskLine({ file, onWrite, onDone }: Props & { onDone: () => void }) {
  const [line, setLine] = useState("");
  return (
    <form
      className="flex flex-wrap items-center gap-2 border-b border-line bg-surface px-3 py-2 text-sm"
      onSubmit={(event) => {
        event.preventDefault();
        onWrite({ id: crypto.randomUUID(), path: file.path, line: line ? Number(line) : null, removed: null, body: "" });
        onDone();
      }}
    >
      <label className="flex items-center gap-2">
        Line
        <input autoFocus type="number" min={1} inputMode="numeric" value={line} onChange={(event) => setLine(event.target.value)} placeholder="all" className="h-7 w-20 rounded border border-line-strong bg-surface px-2" />
      </label>
      <Button small look="primary" type="submit">
        Write a comment
      </Button>
      <span className="text-xs text-ink-faint">Or press a line's number.</span>
    </form>
  );
}

/** Its lines, in a language that is known here. */
function read(file: FileChange): FileDiffMetadata | undefined {
  const parsed = file.kind === "binary" ? undefined : processFile(seen(file.text), { isGitDiff: true });
  return parsed && !Object.hasOwn(bundledLanguages, getFiletypeFromFileName(file.path)) ? setLanguageOverride(parsed, "text") : parsed;
}

function Lines({ id, file, layout, judging, threads, drafts, onWrite, onDrop }: Props) {
  const dark = useDark();
  const parsed = useMemo(() => read(file), [file.kind, file.text, file.path]);
  const shown = useMemo(() => linesOf(file.text), [file.text]);
  const { inside, above } = useMemo(() => placed(file.path, shown, threads, drafts), [file.path, shown, threads, drafts]);
  const options = useMemo(() => {
    const comment = (line: number, side: SelectedLineRange["side"]) =>
      onWrite({ id: crypto.randomUUID(), path: file.path, line: side === "deletions" ? null : line, removed: side === "deletions" ? line : null, body: "" });
    return {
      theme: THEMES,
      themeType: dark ? ("dark" as const) : ("light" as const),
      diffStyle: layout,
      disableFileHeader: true,
      hunkSeparators: "line-info-basic" as const,
      overflow: "scroll" as const,
      unsafeCSS: CSS,
      ...(judging && {
        enableGutterUtility: true,
        lineHoverHighlight: "number" as const,
        onGutterUtilityClick: (range: SelectedLineRange) => comment(range.end, range.endSide ?? range.side),
        onLineNumberClick: ({ lineNumber, annotationSide }: { lineNumber: number; annotationSide: "additions" | "deletions" }) => comment(lineNumber, annotationSide),
      }),
    };
  }, [dark, layout, judging, file.path, onWrite]);
  const writers = { id, onWrite, onDrop };
  return (
    <>
      {above.length > 0 && <Notes notes={above} {...writers} />}
      {parsed?.hunks.length ? (
        <FileDiff<Note[]> fileDiff={parsed} options={options} lineAnnotations={inside} renderAnnotation={(annotation) => <Notes notes={annotation.metadata} {...writers} />} />
      ) : (
        <p className="px-3 py-4 text-sm text-ink-soft">{file.kind === "binary" ? "A binary file; its content is not shown." : "Its content did not change."}</p>
      )}
    </>
  );
}
