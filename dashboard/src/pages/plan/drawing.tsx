/** Boxes and lines from left to right. A screen reader hears a list, each box with what it comes after. */
import type { ReactNode } from "react";
import { Link } from "wouter";

import { Badge } from "../../ui/badge";
import { cx } from "../../ui/cx";
import { statusTone, statusWord } from "../board/words";
import type { Edge, Graph, Node } from "./graph";
import type { Place } from "./layers";

const WIDE = 204;
const HIGH = 88;
const GAP_X = 40;
const GAP_Y = 16;

const left = (place: Place) => place.column * (WIDE + GAP_X);
const top = (place: Place) => place.row * (HIGH + GAP_Y);

interface Props {
  label: string;
  columns: number;
  rows: number;
  edges: readonly Edge[];
  boxes: readonly ({ id: string; content: ReactNode } & Place)[];
  /** Free places that a line leads through. */
  between: (from: string, to: string) => Place[];
}

export function Drawing({ label, columns, rows, edges, boxes, between }: Props) {
  const width = columns * (WIDE + GAP_X) - GAP_X;
  const height = rows * (HIGH + GAP_Y) - GAP_Y;
  const byId = new Map(boxes.map((box) => [box.id, box]));
  return (
    <div className="max-h-[34rem] overflow-auto pb-2" tabIndex={0} role="group" aria-label={label}>
      <div className="relative" style={{ width, height }}>
        <svg width={width} height={height} className="absolute inset-0 overflow-visible" aria-hidden>
          {edges.map((edge) => (
            <path
              key={`${edge.from} ${edge.to} ${edge.kind}`}
              d={edge.kind === "conflict" ? conflict(byId.get(edge.from)!, byId.get(edge.to)!) : line([byId.get(edge.from)!, ...between(edge.from, edge.to), byId.get(edge.to)!])}
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

const middle = (place: Place) => top(place) + (place.size * (HIGH + GAP_Y) - GAP_Y) / 2;

/** From the right of the first to the left of the last, through the places between. */
function line(places: readonly Place[]): string {
  return places
    .slice(1)
    .map((to, index) => {
      const from = places[index]!;
      const passed = index > 0 ? `L${left(from) + WIDE} ${middle(from)} ` : `M${left(from) + WIDE} ${middle(from)} `;
      return passed + curve(left(from) + WIDE, middle(from), left(to), middle(to));
    })
    .join(" ");
}

function conflict(from: Place, to: Place): string {
  if (from.column !== to.column) return `M${left(from) + WIDE} ${middle(from)} ` + curve(left(from) + WIDE, middle(from), left(to), middle(to));
  const x = left(from) + WIDE;
  return `M${x} ${middle(from)} C${x + 28} ${middle(from)} ${x + 28} ${middle(to)} ${x} ${middle(to)}`;
}

function curve(x1: number, y1: number, x2: number, y2: number): string {
  const bend = Math.max(24, Math.abs(x2 - x1) / 2);
  return `C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

export const BOX = "flex h-full w-full flex-col justify-between rounded-lg border border-line bg-raised p-2.5 text-left";

/** The tasks that somebody works on, or will. */
export function TaskGraph({ graph }: { graph: Graph }) {
  const titles = new Map(graph.nodes.map(({ task }) => [task.id, task.title]));
  const boxes = graph.nodes.map((node) => ({
    id: node.task.id,
    column: node.column,
    row: node.row,
    size: 1,
    content: <TaskBox node={node} after={node.task.after.flatMap((id) => titles.get(id) ?? [])} />,
  }));
  return <Drawing label="Task graph" columns={graph.columns} rows={graph.rows} edges={graph.edges} boxes={boxes} between={graph.between} />;
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
