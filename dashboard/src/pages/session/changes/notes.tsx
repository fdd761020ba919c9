/** What was said about a line, and what is being written about it. */
import { useEffect, useRef, useState, type RefObject } from "react";

import { api, path as url } from "../../../api/client";
import type { Thread } from "../../../api/types";
import { may } from "../../../auth";
import { shown } from "../../../keys";
import { Badge } from "../../../ui/badge";
import { Button } from "../../../ui/button";
import { Age } from "../../../ui/time";
import { attempt } from "../../../ui/toast";
import type { DraftComment } from "./draft";
import type { Note } from "./place";

interface Writers {
  id: string;
  onWrite: (comment: DraftComment) => void;
  onDrop: (comment: DraftComment) => void;
}

export function Notes({ notes, ...writers }: { notes: readonly Note[] } & Writers) {
  return (
    <div className="flex max-w-3xl flex-col gap-2 p-2 font-sans text-sm whitespace-normal">
      {notes.map((note) =>
        note.kind === "thread" ? <Said key={note.thread.id} id={writers.id} thread={note.thread} /> : <Writing key={note.comment.id} comment={note.comment} {...writers} />,
      )}
    </div>
  );
}

function Said({ id, thread }: { id: string; thread: Thread }) {
  const [open, setOpen] = useState(!thread.resolved);
  const [replying, setReplying] = useState(false);
  const first = thread.comments[0];
  if (!open) {
    return (
      <button type="button" onClick={() => setOpen(true)} className="flex min-h-7 items-center gap-2 self-start rounded-md border border-line bg-surface px-2 text-xs text-ink-soft hover:text-ink">
        <span aria-hidden>✓</span> Settled: {first?.body.slice(0, 60)}
      </button>
    );
  }
  return (
    <section aria-label={`Discussion begun by ${first?.author ?? "somebody"}`} className="rounded-lg border border-line bg-surface shadow-card">
      <ol className="divide-y divide-line">
        {thread.comments.map((comment) => (
          <li key={comment.id} className="px-3 py-2">
            <p className="flex items-center gap-2 text-xs text-ink-soft">
              <span className="font-medium text-ink">{comment.author}</span>
              {comment.byAgent && <Badge tone="review">agent</Badge>}
              {comment.kind === "bot" && <Badge>bot</Badge>}
              <Age at={comment.at} className="ml-auto" />
            </p>
            <p className="mt-0.5 break-words whitespace-pre-wrap">{comment.body}</p>
          </li>
        ))}
      </ol>
      {may("operator") && (
        <div className="border-t border-line p-2">
          {replying ? (
            <Words
              label="Your reply"
              action="Reply"
              onCancel={() => setReplying(false)}
              onSave={async (body) => {
                const reply = { verdict: "commented", comments: [{ body, thread: first?.id ?? thread.id, path: thread.path, line: thread.line }] };
                if (await attempt(() => api.post(url`/api/sessions/${id}/review`, reply))) setReplying(false);
              }}
            />
          ) : (
            <div className="flex gap-2">
              <Button small look="quiet" onClick={() => setReplying(true)}>
                Reply
              </Button>
              {!thread.resolved && (
                <Button small look="quiet" onClick={() => void attempt(() => api.post(url`/api/sessions/${id}/resolve`, { threads: [thread.id] }), "Settled")}>
                  Settle
                </Button>
              )}
            </div>
          )}
        </div>
      )}
    </section>
  );
}

function Writing({ comment, onWrite, onDrop }: { comment: DraftComment } & Writers) {
  const [editing, setEditing] = useState(comment.body === "");
  return (
    <section aria-label={`Your comment on ${whereOf(comment)}`} className="rounded-lg border border-accent/50 bg-surface p-2 shadow-card">
      <p className="mb-1 flex items-center gap-2 text-xs text-ink-soft">
        <Badge tone="needs">not given yet</Badge> {whereOf(comment)}
      </p>
      {editing ? (
        <Words
          label={`Your comment on ${whereOf(comment)}`}
          action="Keep"
          begin={comment.body}
          onCancel={() => (comment.body ? setEditing(false) : onDrop(comment))}
          onSave={(body) => {
            onWrite({ ...comment, body });
            setEditing(false);
          }}
        />
      ) : (
        <>
          <p className="px-1 break-words whitespace-pre-wrap">{comment.body}</p>
          <div className="mt-1 flex gap-2">
            <Button small look="quiet" onClick={() => setEditing(true)}>
              Change
            </Button>
            <Button small look="quiet" onClick={() => onDrop(comment)}>
              Delete
            </Button>
          </div>
        </>
      )}
    </section>
  );
}

export function whereOf({ line, removed }: Pick<DraftComment, "line" | "removed">): string {
  if (removed !== null) return `removed line ${removed}`;
  return line === null ? "the file" : `line ${line}`;
}

const FRAMES = 30;

/** A note is drawn a moment before the diff has made its place; only then can it have the focus. */
function useFocusOnceShown(box: RefObject<HTMLTextAreaElement | null>): void {
  useEffect(() => {
    let frame = 0;
    let left = FRAMES;
    const look = () => {
      if (box.current?.checkVisibility()) box.current.focus();
      else if (left-- > 0) frame = requestAnimationFrame(look);
    };
    look();
    return () => cancelAnimationFrame(frame);
  }, [box]);
}

function Words({ label, action, begin = "", onSave, onCancel }: { label: string; action: string; begin?: string; onSave: (body: string) => void; onCancel: () => void }) {
  const [text, setText] = useState(begin);
  const box = useRef<HTMLTextAreaElement>(null);
  useFocusOnceShown(box);
  const save = () => text.trim() && onSave(text.trim());
  return (
    <form
      className="flex flex-col gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <textarea
        ref={box}
        aria-label={label}
        placeholder={`What should be different? (${shown("Mod+Enter")} keeps it)`}
        rows={2}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") onCancel();
          else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
          else return;
          event.preventDefault();
        }}
        className="field-sizing-content max-h-60 min-h-14 w-full resize-none rounded-md border border-line-strong bg-surface px-2 py-1.5"
      />
      <div className="flex gap-2">
        <Button small look="primary" type="submit" disabled={!text.trim()}>
          {action}
        </Button>
        <Button small onClick={onCancel}>
          Cancel
        </Button>
      </div>
    </form>
  );
}
