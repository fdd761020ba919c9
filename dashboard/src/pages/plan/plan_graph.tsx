/** A plan's tasks as boxes and lines. The table below says the same in words. */
import { Link } from "wouter";

import type { BoardSession, PlannedTask } from "../../api/types";
import { Badge } from "../../ui/badge";
import { cx } from "../../ui/cx";
import { BOX, Drawing } from "./drawing";
import type { Edge } from "./graph";
import { layered } from "./layers";
import type { Standing } from "./tasks";

export interface Row {
  task: PlannedTask;
  session: BoardSession | undefined;
  /** How far it is, once its plan was applied. */
  stands: Standing | null;
}

export const rowId = (task: Pick<PlannedTask, "id">) => `task-${task.id}`;

/** Lead the eyes and the keyboard to a task's row. */
export function show(task: Pick<PlannedTask, "id">, block: ScrollLogicalPosition = "center"): void {
  const row = document.getElementById(rowId(task));
  row?.scrollIntoView({ block });
  row?.focus({ preventScroll: true });
}

export function PlanGraph({ rows }: { rows: readonly Row[] }) {
  const there = new Map(rows.map(({ task }) => [task.id, task.title]));
  const edges = rows.flatMap(({ task }) => task.dependencies.filter((id) => there.has(id)).map((id): Edge => ({ from: id, to: task.id, kind: "after" })));
  if (edges.length === 0) return <p className="text-sm text-ink-soft">None waits for another: all may be worked on at once.</p>;
  const layers = layered(rows.map(({ task }) => ({ id: task.id, after: task.dependencies })));
  const boxes = rows.map((row) => ({
    id: row.task.id,
    ...layers.places.get(row.task.id)!,
    content: <Box row={row} after={row.task.dependencies.flatMap((id) => there.get(id) ?? [])} />,
  }));
  return <Drawing label="Graph of the plan" columns={layers.columns} rows={layers.rows} edges={edges} boxes={boxes} between={layers.between} />;
}

function Box({ row: { task, session, stands }, after }: { row: Row; after: string[] }) {
  const content = (
    <>
      <span className={cx("line-clamp-2 shrink-0 text-sm leading-snug font-medium", stands?.done && "text-ink-soft")}>{task.title}</span>
      <span className="flex items-center gap-2 text-xs text-ink-soft">
        <span className="font-mono text-ink-faint">{task.id}</span>
        {stands ? <Badge tone={stands.tone}>{stands.word}</Badge> : <span>{task.effort}</span>}
        <span className="min-w-0 truncate">{session?.profile ?? session?.agent ?? task.profile}</span>
      </span>
      {after.length > 0 && <span className="sr-only">after {after.join(", ")}</span>}
    </>
  );
  const look = cx(BOX, "hover:border-line-strong");
  return session ? (
    <Link href={`/sessions/${encodeURIComponent(session.id)}`} className={look}>
      {content}
    </Link>
  ) : (
    <button type="button" onClick={() => show(task)} className={look}>
      {content}
    </button>
  );
}
