import { Link } from "wouter";

import { Badge } from "../../ui/badge";
import { cx } from "../../ui/cx";
import { statusTone, statusWord } from "../board/words";
import type { Graph, Node } from "./graph";

const WIDE = 220;
const HIGH = 88;
const GAP_X = 56;
const GAP_Y = 16;

const left = (node: Node) => node.column * (WIDE + GAP_X);
const top = (node: Node) => node.row * (HIGH + GAP_Y);

/** The tasks as boxes and lines. A screen reader hears a list, each with what it comes after. */
export function TaskGraph({ graph }: { graph: Graph }) {
  const width = graph.columns * (WIDE + GAP_X) - GAP_X;
  const height = graph.rows * (HIGH + GAP_Y) - GAP_Y;
  const byId = new Map(graph.nodes.map((node) => [node.task.id, node]));
  return (
    <div className="overflow-x-auto pb-2" tabIndex={0} role="group" aria-label="Task graph">
      <div className="relative" style={{ width, height }}>
        <svg width={width} height={height} className="absolute inset-0" aria-hidden>
          {graph.edges.map((edge) => (
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
          {graph.nodes.map((node) => (
            <li key={node.task.id} className="absolute" style={{ left: left(node), top: top(node), width: WIDE, height: HIGH }}>
              <TaskBox node={node} after={node.task.after.flatMap((id) => byId.get(id)?.task.title ?? [])} />
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
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

function line(from: Node, to: Node, conflict: boolean): string {
  if (conflict && from.column === to.column) {
    const x = left(from) + WIDE;
    const [a, b] = [top(from) + HIGH / 2, top(to) + HIGH / 2];
    return `M${x} ${a} C${x + 28} ${a} ${x + 28} ${b} ${x} ${b}`;
  }
  const [x1, y1, x2, y2] = [left(from) + WIDE, top(from) + HIGH / 2, left(to), top(to) + HIGH / 2];
  const bend = Math.max(24, Math.abs(x2 - x1) / 2);
  return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

function TaskBox({ node, after }: { node: Node; after: string[] }) {
  const { task, session } = node;
  const box = cx("flex h-full flex-col justify-between rounded-lg border border-line bg-raised p-2.5", session && "hover:border-line-strong");
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
    <Link href={`/sessions/${encodeURIComponent(session.id)}`} className={box}>
      {content}
    </Link>
  ) : (
    <div className={box}>{content}</div>
  );
}
