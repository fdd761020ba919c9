/** Boxes and lines from left to right. A screen reader hears a list, each box with what it comes after. */
import type { ReactNode } from "react";
import { Link } from "wouter";

import { Badge } from "../../ui/badge";
import { cx } from "../../ui/cx";
import { statusTone, statusWord } from "../board/words";
import type { Edge, Graph, Node } from "./graph";
import type { Place } from "./layers";

const WIDE = 220;
const HIGH = 88;
const GAP_X = 56;
const GAP_Y = 16;

const left = (place: Place) => place.column * (WIDE + GAP_X);
const top = (place: Place) => place.row * (HIGH + GAP_Y);

interface Props {
  label: string;
  columns: number;
  rows: number;
  edges: readonly Edge[];
  boxes: readonly ({ id: string; content: ReactNode } & Place)[];
}

export function Drawing({ label, columns, rows, edges, boxes }: Props) {
  const width = columns * (WIDE + GAP_X) - GAP_X;
  const height = rows * (HIGH + GAP_Y) - GAP_Y;
  const byId = new Map(boxes.map((box) => [box.id, box]));
  return (
    <div className="max-h-[34rem] overflow-auto pb-2" tabIndex={0} role="group" aria-label={label}>
      <div className="relative" style={{ width, height }}>
        <svg width={width} height={height} className="absolute inset-0" aria-hidden>
          {edges.map((edge) => (
            <path
              key={`${edge.from} ${edge.to} ${edge.kind}`}
              d={line(byId.get(edge.from)!, byId.get(edge.to)!, edge.kind === "conflict")}
              fill="none"
              strokeWidth="1.5"
              className={edge.kind === "conflict" ? "stroke-bad [stroke-dasharray:4_4]" : "stroke-line-strong"}
            />
          ))}
        </svg>
        <ul>
          {boxes.map((box) => (
            <li key={box.id} className="absolute" style={{ left: left(box), top: top(box), width: WIDE, height: HIGH }}>
              {box.content}
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

function line(from: Place, to: Place, conflict: boolean): string {
  if (conflict && from.column === to.column) {
    const x = left(from) + WIDE;
    const [a, b] = [top(from) + HIGH / 2, top(to) + HIGH / 2];
    return `M${x} ${a} C${x + 28} ${a} ${x + 28} ${b} ${x} ${b}`;
  }
  const [x1, y1, x2, y2] = [left(from) + WIDE, top(from) + HIGH / 2, left(to), top(to) + HIGH / 2];
  const bend = Math.max(24, Math.abs(x2 - x1) / 2);
  return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

export const BOX = "flex h-full w-full flex-col justify-between rounded-lg border border-line bg-raised p-2.5 text-left";

/** The tasks that somebody works on, or will. */
export function TaskGraph({ graph }: { graph: Graph }) {
  const titles = new Map(graph.nodes.map(({ task }) => [task.id, task.title]));
  const boxes = graph.nodes.map((node) => ({
    id: node.task.id,
    column: node.column,
    row: node.row,
    content: <TaskBox node={node} after={node.task.after.flatMap((id) => titles.get(id) ?? [])} />,
  }));
  return <Drawing label="Task graph" columns={graph.columns} rows={graph.rows} edges={graph.edges} boxes={boxes} />;
}

/** Tasks that stand by themselves. */
export function FreeTasks({ nodes }: { nodes: readonly Node[] }) {
  return (
    <ul aria-label="Tasks that stand by themselves" className="grid grid-cols-[repeat(auto-fill,minmax(13.75rem,1fr))] gap-3">
      {nodes.map((node) => (
        <li key={node.task.id} className="min-h-[5.5rem]">
          <TaskBox node={node} after={[]} />
        </li>
      ))}
    </ul>
  );
}

function TaskBox({ node, after }: { node: Node; after: string[] }) {
  const { task, session } = node;
  const content = (
    <>
      <span className="line-clamp-2 shrink-0 text-sm leading-snug font-medium">{task.title}</span>
      <span className="flex items-center gap-2 text-xs text-ink-soft">
        {session ? <Badge tone={statusTone(session.status)}>{statusWord(session.status)}</Badge> : <Badge>not started</Badge>}
        <span className="truncate">{session?.agent}</span>
      </span>
      {after.length > 0 && <span className="sr-only">after {after.join(", ")}</span>}
    </>
  );
  return session ? (
    <Link href={`/sessions/${encodeURIComponent(session.id)}`} className={cx(BOX, "hover:border-line-strong")}>
      {content}
    </Link>
  ) : (
    <div className={BOX}>{content}</div>
  );
}
