/** What became of a message, in a word, with what to know about it. */
import type { Message } from "../../../api/types";
import type { Tone } from "../../../ui/badge";

export interface Receipt {
  word: string;
  sign: string;
  tone: Tone;
  /** The moment that the word speaks of. */
  at: string;
  note: string | null;
}

export function receipt(message: Message): Receipt {
  switch (message.state) {
    case "queued":
      return { word: "Queued", sign: "○", tone: "plain", at: message.createdAt, note: message.reason };
    case "held":
      return { word: "Held", sign: "◔", tone: "needs", at: message.createdAt, note: message.reason };
    case "delivered":
      return { word: "Delivered", sign: "✓", tone: "work", at: message.deliveredAt ?? message.createdAt, note: message.reason };
    case "acknowledged":
      return { word: "Acknowledged", sign: "✓✓", tone: "ready", at: message.acknowledgedAt ?? message.createdAt, note: null };
    case "failed":
      return { word: "Not delivered", sign: "✕", tone: "bad", at: message.createdAt, note: message.reason };
  }
}

/** Newest last; only what a person or a rule said, as many as fit under a message box. */
export const latest = (messages: readonly Message[], most: number): Message[] => messages.slice(-most);
