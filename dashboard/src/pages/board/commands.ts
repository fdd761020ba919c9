/** What the keys do on the board, and the palette offers there. */
import { useMemo, type RefObject } from "react";
import { navigate } from "wouter/use-browser-location";

import { merge, restore } from "../../actions";
import { may } from "../../auth";
import type { Command } from "../../keys";
import { askToNotify, stopNotifying, useNotifying } from "../../live/notify";
import type { Card } from "./arrange";
import { decided } from "./asks";
import { act } from "./doing";
import { cardWithin, focused } from "./focus";
import type { Direction } from "./move";
import { nextAction } from "./next";
import { perform } from "./next_button";
import { sessionPath } from "./paths";

export interface Now {
  cards: readonly (readonly Card[])[];
  ids: readonly (readonly string[])[];
  current: string | null;
}

interface Means {
  now: RefObject<Now>;
  region: RefObject<HTMLDivElement | null>;
  search: RefObject<HTMLInputElement | null>;
  focus: (id: string | null) => void;
  move: (direction: Direction) => void;
  onReply: (id: string | null) => void;
}

/** Every key of the board. They mean the focused card; where none is, the first press only shows which would be meant. */
export function useBoardCommands({ now, region, search, focus, move, onReply }: Means): Command[] {
  const telling = useNotifying();
  return useMemo(() => {
    const withCard = (run: (card: Card) => void) => () => {
      const palette = document.activeElement?.closest("[role=dialog]");
      const meant = focused() ?? (palette ? now.current.current : null);
      const card = now.current.cards.flat().find(({ session }) => session.id === meant);
      if (card) run(card);
      else focus(now.current.current);
    };
    const walk: Command[] = [
      { id: "card down", label: "Next card", group: "Cards", keys: "j", run: () => move("down") },
      { id: "card up", label: "Card before", group: "Cards", keys: "k", run: () => move("up") },
      { id: "card left", label: "Column to the left", group: "Cards", keys: "h", run: () => move("left") },
      { id: "card right", label: "Column to the right", group: "Cards", keys: "l", run: () => move("right") },
      { id: "card open", label: "Open the card (also Enter)", group: "Cards", keys: "o", run: withCard(({ session }) => navigate(sessionPath(session.id))) },
      { id: "search", label: "Search the cards", group: "Board", keys: "/", run: () => search.current?.focus() },
      { id: "notify", label: telling === "on" ? "Stop notifications" : "Notify me when an agent needs me", group: "Board", run: () => void (telling === "on" ? stopNotifying() : askToNotify()) },
    ];
    if (!may("operator")) return walk;
    const write = ({ session, questions }: Card) => {
      if (questions.some((one) => one.kind === "question")) cardWithin(region.current, session.id)?.querySelector<HTMLElement>("[data-reply]")?.focus();
      else if (session.column !== "Done") onReply(session.id);
    };
    const decision = (word: "allow" | "always" | "deny") =>
      withCard(({ questions }) => {
        const question = questions.find((one) => one.kind !== "question" && (word !== "always" || one.kind === "permission"));
        if (question) void decided(question, word);
      });
    return [
      ...walk,
      { id: "card reply", label: "Reply, or answer", group: "Cards", keys: "r", run: withCard(write) },
      { id: "card allow", label: "Allow, let through, or do what is offered", group: "Cards", keys: "a", run: decision("allow") },
      { id: "card always", label: "Always allow", group: "Cards", keys: "Shift+A", run: decision("always") },
      { id: "card deny", label: "Deny, drop, or not now", group: "Cards", keys: "d", run: decision("deny") },
      {
        id: "card merge",
        label: "Merge",
        group: "Cards",
        keys: "m",
        run: withCard(({ session }) => {
          if (session.column === "Ready to merge") void act(session.id, session.status, "merging…", () => merge(session.id));
        }),
      },
      {
        id: "card restore",
        label: "Restore",
        group: "Cards",
        keys: "Shift+R",
        run: withCard(({ session }) => void act(session.id, session.status, "restoring…", () => restore(session.id))),
      },
      {
        id: "card next",
        label: "Do the next thing that the card offers",
        group: "Cards",
        keys: ".",
        run: withCard((card) => {
          const next = nextAction(card.session, card.questions[0]);
          if (next.kind === "answer" || next.kind === "reply") write(card);
          else if ("question" in next) void decided(next.question, "allow");
          else perform(card.session, next);
        }),
      },
    ];
  }, [now, region, search, focus, move, onReply, telling]);
}
