/** The judgement: all comments and a verdict in one review for the agent. */
import { useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";

import { api, path } from "../../../api/client";
import type { BoardSession } from "../../../api/types";
import { Button } from "../../../ui/button";
import { Dialog } from "../../../ui/dialog";
import { attempt } from "../../../ui/toast";
import { asReview, emptied, type Draft } from "./draft";
import { whereOf } from "./notes";

type Verdict = "approved" | "changes_requested" | "commented";

const DONE: Record<Verdict, string> = { approved: "Approved", changes_requested: "The agent was asked for changes", commented: "Commented" };

export function ReviewBar({ session, draft, onChange }: { session: BoardSession; draft: Draft; onChange: (change: (before: Draft) => Draft) => void }) {
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState<Verdict | null>(null);
  const key = useRef(crypto.randomUUID());
  const client = useQueryClient();
  const comments = draft.comments.filter((one) => one.body.trim());
  const said = comments.length > 0 || draft.body.trim() !== "";

  const give = async (verdict: Verdict) => {
    setBusy(verdict);
    const done = await attempt(() => api.post(path`/api/sessions/${session.id}/review`, asReview(draft, verdict), `${key.current}-${verdict}`), DONE[verdict]);
    setBusy(null);
    if (!done) return;
    key.current = crypto.randomUUID();
    onChange(emptied);
    setOpen(false);
    void client.invalidateQueries({ queryKey: ["session", session.id] });
  };
  return (
    <>
      <div className="sticky bottom-0 z-10 -mx-3 mt-auto -mb-3 sm:-mb-4 flex flex-wrap items-center gap-2 border-t border-line bg-surface/95 px-3 py-2 backdrop-blur sm:-mx-4 sm:px-4">
        <p className="mr-auto text-sm text-ink-soft" role="status">
          {comments.length ? `${comments.length} ${comments.length === 1 ? "comment" : "comments"} not given yet` : "Press a line's number to comment on it"}
        </p>
        <Button look="primary" onClick={() => setOpen(true)}>
          {comments.length ? "Finish the review" : "Review"}
        </Button>
      </div>
      <Dialog open={open} onClose={() => setOpen(false)} title="Review this change" wide={comments.length > 0}>
        {comments.length > 0 && (
          <ul className="max-h-60 divide-y divide-line overflow-auto rounded-md border border-line" aria-label="Your comments">
            {comments.map((comment) => (
              <li key={comment.id} className="px-3 py-1.5">
                <p className="font-mono text-xs text-ink-faint">
                  {comment.path}, {whereOf(comment)}
                </p>
                <p className="line-clamp-2 text-sm break-words">{comment.body}</p>
              </li>
            ))}
          </ul>
        )}
        <textarea
          aria-label="In short"
          placeholder="In short (optional when you approve or have commented)"
          rows={3}
          value={draft.body}
          onChange={(event) => onChange((before) => ({ ...before, body: event.target.value }))}
          className="field-sizing-content max-h-60 min-h-20 w-full resize-none rounded-md border border-line-strong bg-surface px-2 py-1.5"
        />
        <div className="flex flex-wrap justify-end gap-2">
          <Button busy={busy === "commented"} disabled={!said || busy !== null} onClick={() => void give("commented")}>
            Comment
          </Button>
          <Button look="danger" busy={busy === "changes_requested"} disabled={!said || busy !== null} onClick={() => void give("changes_requested")}>
            Request changes
          </Button>
          <Button look="primary" busy={busy === "approved"} disabled={busy !== null} onClick={() => void give("approved")}>
            Approve
          </Button>
        </div>
        <p className="text-xs text-ink-faint">A request for changes goes to the agent as one message, with all comments.</p>
      </Dialog>
    </>
  );
}
