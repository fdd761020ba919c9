/** Words to the agent, and what became of the last ones. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";

import { send } from "../../../actions";
import { api, path } from "../../../api/client";
import type { Message, Messages } from "../../../api/types";
import { may, me } from "../../../auth";
import { shown } from "../../../keys";
import { Badge } from "../../../ui/badge";
import { Button } from "../../../ui/button";
import { ProblemNote } from "../../../ui/problem";
import { Age } from "../../../ui/time";
import { attempt } from "../../../ui/toast";
import { latest, receipt } from "./receipt";

const FEW = 2;
const drafts = new Map<string, string>();
const touch = window.matchMedia("(pointer: coarse)").matches;

export function MessageBox({ id }: { id: string }) {
  const client = useQueryClient();
  const messages = useQuery({ queryKey: ["session", id, "messages"], queryFn: () => api.get<Messages>(path`/api/sessions/${id}/messages`) });
  const [text, setText] = useState(drafts.get(id) ?? "");
  const [busy, setBusy] = useState(false);
  const [all, setAll] = useState(false);
  const key = useRef(crypto.randomUUID());

  const write = (next: string) => {
    setText(next);
    drafts.set(id, next);
  };
  const submit = async () => {
    if (!text.trim() || busy) return;
    setBusy(true);
    if (await attempt(() => send(id, text, key.current))) {
      key.current = crypto.randomUUID();
      write("");
      void client.invalidateQueries({ queryKey: ["session", id, "messages"] });
    }
    setBusy(false);
  };
  const list = messages.data?.messages ?? [];
  const visible = all ? list : latest(list, FEW);
  return (
    <section aria-label="Messages to the agent" className="flex shrink-0 flex-col gap-2 empty:hidden">
      {messages.isError && <ProblemNote error={messages.error} />}
      {list.length > FEW && (
        <button type="button" onClick={() => setAll(!all)} aria-expanded={all} className="min-h-6 self-start rounded text-xs text-ink-soft underline-offset-2 hover:text-ink hover:underline">
          {all ? "Show only the last messages" : `Show all ${list.length} messages`}
        </button>
      )}
      {visible.length > 0 && (
        <ol className="flex max-h-60 flex-col gap-1 overflow-y-auto" aria-label="Messages and what became of them" tabIndex={all ? 0 : undefined}>
          {visible.map((message) => (
            <Said key={message.messageId} message={message} whole={all} />
          ))}
        </ol>
      )}
      {may("operator") && (
        <form
          className="flex items-end gap-2 rounded-lg border border-line bg-surface p-1.5 focus-within:border-accent"
          onSubmit={(event) => {
            event.preventDefault();
            void submit();
          }}
        >
          <textarea
            aria-label="Message to the agent"
            aria-keyshortcuts="Control+Enter Meta+Enter"
            placeholder={touch ? "Message to the agent" : `Message to the agent (${shown("Mod+Enter")} sends)`}
            rows={1}
            value={text}
            onChange={(event) => write(event.target.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
              event.preventDefault();
              void submit();
            }}
            className="field-sizing-content max-h-48 min-h-8 w-full min-w-0 flex-1 resize-none bg-transparent px-1.5 py-1.5 outline-none placeholder:text-ink-faint"
          />
          <Button type="submit" look="primary" busy={busy} disabled={!text.trim()}>
            Send
          </Button>
        </form>
      )}
    </section>
  );
}

function Said({ message, whole }: { message: Message; whole: boolean }) {
  const became = receipt(message);
  return (
    <li className="flex items-baseline gap-2 rounded-md px-1.5 py-0.5 text-sm">
      <Badge tone={became.tone}>
        <span aria-hidden>{became.sign}</span>
        {became.word}
      </Badge>
      <span className={whole ? "min-w-0 flex-1 break-words whitespace-pre-wrap" : "min-w-0 flex-1 truncate"} title={whole ? undefined : message.content}>
        {message.sender !== "person" && message.sender !== me.read()?.name && <span className="text-ink-faint">{message.sender}: </span>}
        {message.content}
        {became.note && <span className="text-ink-soft"> ({became.note})</span>}
      </span>
      <Age at={became.at} className="shrink-0 text-xs text-ink-faint" />
    </li>
  );
}
