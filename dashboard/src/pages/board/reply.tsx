/** Words to a session from its card, and what became of the last ones. */
import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";

import { send } from "../../actions";
import { api, path } from "../../api/client";
import type { BoardSession, Messages } from "../../api/types";
import { forgetSent, say, useSent } from "./doing";
import { Writing } from "./writing";

const LINGER = 20_000;
/** Milliseconds for which words that were taken up stay on the card. */

const STATES: Record<string, string> = {
  queued: "queued",
  held: "held until it can be typed",
  delivered: "delivered",
  acknowledged: "taken up",
  failed: "not delivered",
};

export const reply = (session: BoardSession, text: string) => {
  const key = crypto.randomUUID();
  return say(session.id, text, () => send(session.id, text, key));
};

export function Reply({ session, tab, onClose }: { session: BoardSession; tab: number; onClose: () => void }) {
  return (
    <Writing
      autoFocus
      tab={tab}
      label={`Message to ${session.id}`}
      placeholder={session.pid === null ? "Message; it starts the agent again" : "Message to the agent"}
      action="Send"
      onSend={(text) => reply(session, text)}
      onClose={onClose}
    />
  );
}

/** The last words that were sent from here: queued, held, delivered, taken up. */
export function Receipt({ session }: { session: BoardSession }) {
  const last = useSent(session.id);
  return last ? <Fate session={session.id} text={last.text} message={last.message} state={last.state} /> : null;
}

function Fate({ session, text, message, state }: { session: string; text: string; message: string | null; state: string }) {
  const { data } = useQuery({
    queryKey: ["session", session, "messages"],
    queryFn: () => api.get<Messages>(`${path`/api/sessions/${session}`}/messages`),
    enabled: message !== null,
  });
  const told = data?.messages.find((one) => one.messageId === message);
  const now = told?.state ?? state;
  useEffect(() => {
    if (now !== "acknowledged" && now !== "delivered") return;
    const timer = setTimeout(() => forgetSent(session, text), LINGER);
    return () => clearTimeout(timer);
  }, [session, text, now]);
  return (
    <p className="flex items-baseline gap-2 text-xs text-ink-soft">
      <span className="min-w-0 truncate">
        <span className="text-ink-faint">You: </span>
        {text}
      </span>
      <span role="status" title={told?.reason ?? undefined} className={`ml-auto shrink-0 ${now === "failed" ? "text-bad" : now === "acknowledged" ? "text-ready" : "text-ink-faint"}`}>
        {STATES[now] ?? now}
      </span>
    </p>
  );
}
