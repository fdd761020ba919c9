/** One column: its name and count, its cards, the newest of the done ones. */
import { memo } from "react";

import { Button } from "../../ui/button";
import { cx } from "../../ui/cx";
import { COLUMNS, isQuiet, type Arranged, type Card } from "./arrange";
import { SessionCard } from "./card";

const DOTS = { needs: "bg-needs", work: "bg-work", review: "bg-review", ready: "bg-ready", plain: "bg-ink-faint" } as const;

export const NEWEST = 20;
/** Cards of the last column that are shown until more are asked for. */

/** The cards of a column that are drawn. */
export function drawn(column: Arranged, all: boolean): readonly Card[] {
  const cards = column.groups.flatMap((group) => group.cards);
  return all || column.name !== "Done" ? cards : cards.slice(0, NEWEST);
}

interface Props {
  column: Arranged;
  /** The card that the keys mean, if it stands here. */
  current: string | null;
  replying: string | null;
  naming: boolean;
  all: boolean;
  /** On a phone one column is shown at a time. */
  chosen: boolean;
  narrowed: boolean;
  onAll: () => void;
  onReply: (id: string | null) => void;
}

export const Column = memo(function Column({ column, current, replying, naming, all, chosen, narrowed, onAll, onReply }: Props) {
  const { tone, empty } = COLUMNS.find(({ name }) => name === column.name)!;
  const shown = new Set(drawn(column, all));
  const heading = `column-${column.name.replaceAll(" ", "-")}`;
  return (
    <section aria-labelledby={heading} className={cx("min-h-0 min-w-0 flex-col md:flex", chosen ? "flex" : "max-md:hidden")}>
      <h2 id={heading} className="flex items-center gap-2 px-1 pb-2 text-sm font-semibold max-md:sr-only">
        <span aria-hidden className={cx("size-2 rounded-full", DOTS[tone])} />
        {column.name}
        <span className="font-normal text-ink-faint tabular-nums">
          {column.count}
          <span className="sr-only"> {column.count === 1 ? "session" : "sessions"}</span>
        </span>
      </h2>
      <div className="relative flex min-h-0 flex-col gap-2 pb-4 max-md:px-0.5 md:-mx-1 md:overflow-y-auto md:px-1 md:pt-px">
        {column.groups.map((group) => (
          <Cards
            key={group.title}
            title={group.title}
            cards={group.cards.filter((card) => shown.has(card))}
            {...{ current, replying, naming, onReply }}
          />
        ))}
        {!column.count && <p className="rounded-lg border border-dashed border-line px-3 py-5 text-center text-xs text-ink-faint">{narrowed ? "Nothing that you filter for" : empty}</p>}
        {shown.size < column.count && (
          <Button small look="quiet" onClick={onAll}>
            Show all {column.count}
          </Button>
        )}
      </div>
    </section>
  );
});

interface CardsProps {
  title: string;
  cards: readonly Card[];
  current: string | null;
  replying: string | null;
  naming: boolean;
  onReply: (id: string | null) => void;
}

function Cards({ title, cards, current, replying, naming, onReply }: CardsProps) {
  const quiet = cards.findIndex(isQuiet);
  const list = (some: readonly Card[], label?: string) => (
    <ul className="flex flex-col gap-2" aria-label={label}>
      {some.map(({ session, questions }) => (
        <li key={session.id}>
          <SessionCard session={session} questions={questions} current={session.id === current} replying={session.id === replying} naming={naming} onReply={onReply} />
        </li>
      ))}
    </ul>
  );
  if (!cards.length) return null;
  const calling = cards[0]?.session.column === "Needs you" && quiet >= 0 ? quiet : cards.length;
  return (
    <>
      {title && (
        <h3 className="flex items-baseline gap-1.5 px-1 pt-1 text-xs font-medium text-ink-soft">
          {title} <span className="font-normal text-ink-faint">{cards.length}</span>
        </h3>
      )}
      {calling > 0 && list(cards.slice(0, calling), title || undefined)}
      {calling < cards.length && (
        <>
          <p className={cx("px-1 text-xs text-ink-faint", calling > 0 && "pt-2")}>When you have a moment</p>
          {list(cards.slice(calling), "When you have a moment")}
        </>
      )}
    </>
  );
}
