/** On a phone: the columns under the thumb, one shown at a time. */
import { cx } from "../../ui/cx";
import { COLUMNS, type Arranged, type ColumnName } from "./arrange";

const TEXTS = { needs: "text-needs", work: "text-work", review: "text-review", ready: "text-ready", plain: "text-ink" } as const;

export function Tabs({ columns, chosen, onChoose }: { columns: readonly Arranged[]; chosen: ColumnName; onChoose: (name: ColumnName) => void }) {
  return (
    <nav aria-label="Columns" className="fixed inset-x-0 bottom-0 z-20 grid grid-cols-5 border-t border-line bg-surface pb-[env(safe-area-inset-bottom)] md:hidden">
      {COLUMNS.map(({ name, short, tone }, index) => {
        const current = name === chosen;
        return (
          <button
            key={name}
            type="button"
            aria-current={current || undefined}
            onClick={() => {
              onChoose(name);
              window.scrollTo({ top: 0 });
            }}
            className={cx(
              "flex min-h-14 flex-col items-center justify-center gap-0.5 border-t-2 text-xs focus-visible:-outline-offset-2",
              current ? "border-current font-semibold" : "border-transparent text-ink-soft",
              current && TEXTS[tone],
            )}
          >
            <span className={cx("text-base leading-none tabular-nums", !current && columns[index]!.count > 0 && tone === "needs" && "font-semibold text-needs")}>{columns[index]!.count}</span>{" "}
            <span>{short}</span>
            {short !== name && <span className="sr-only"> ({name})</span>}
          </button>
        );
      })}
    </nav>
  );
}
