/** Tasks and what each comes after, laid out from left to right. Pure. */
import type { BacklogEntry, BoardSession, Task } from "../../api/types";
import { layered, type Layers } from "./layers";

export interface Node {
  task: Task;
  /** The newest session that attempts it. */
  session: BoardSession | undefined;
  column: number;
  row: number;
}

export interface Edge {
  from: string;
  to: string;
  kind: "after" | "conflict";
}

export interface Graph {
  nodes: Node[];
  edges: Edge[];
  /** Those that come after nothing, before nothing, and conflict with nobody: they need no place in a drawing. */
  free: Node[];
  /** Free places that a line leads through. */
  between: Layers["between"];
  columns: number;
  rows: number;
}

/** Tasks that are still open, and the finished ones that these come after. */
export function graphOf(tasks: readonly Task[], sessions: ReadonlyMap<string, BoardSession>): Graph {
  const byId = new Map(tasks.map((task) => [task.id, task]));
  const newest = (task: Task) => sessions.get(task.sessions.at(-1) ?? "");
  const open = tasks.filter((task) => newest(task)?.column !== "Done" && newest(task)?.kind !== "coordinator");
  const shown = new Set(open.flatMap((task) => [task.id, ...task.after.filter((id) => byId.has(id))]));
  const all = tasks.filter((task) => shown.has(task.id)).map((task): Node => ({ task, session: newest(task), column: 0, row: 0 }));
  const edges = [...dependencies(all), ...conflicts(all)];
  const joined = new Set(edges.flatMap((edge) => [edge.from, edge.to]));
  const drawn = all.filter((node) => joined.has(node.task.id));
  const { places, between, columns, rows } = layered(drawn.map(({ task }) => ({ id: task.id, after: task.after })));
  const nodes = drawn.map((node) => ({ ...node, ...places.get(node.task.id)! }));
  return { nodes, edges, free: all.filter((node) => !joined.has(node.task.id)), between, columns, rows };
}

function dependencies(nodes: readonly Node[]): Edge[] {
  const there = new Set(nodes.map((node) => node.task.id));
  return nodes.flatMap((node) => node.task.after.filter((id) => there.has(id)).map((id): Edge => ({ from: id, to: node.task.id, kind: "after" })));
}

/** Each pair once, however many of the two know of it. */
function conflicts(nodes: readonly Node[]): Edge[] {
  const taskOf = new Map(nodes.flatMap((node) => (node.session ? [[node.session.id, node.task.id] as const] : [])));
  const pairs = new Map<string, Edge>();
  for (const node of nodes) {
    for (const one of node.session?.collides ?? []) {
      const other = taskOf.get(one.session);
      if (!other || other === node.task.id) continue;
      const [from, to] = [node.task.id, other].sort() as [string, string];
      pairs.set(`${from} ${to}`, { from, to, kind: "conflict" });
    }
  }
  return [...pairs.values()];
}

/** Does somebody work on this issue already? Then it stands among the tasks. */
export function takenBy(sessions: Iterable<BoardSession>, { project, issue }: Pick<BacklogEntry, "project" | "issue">): boolean {
  for (const session of sessions) {
    if (session.project === project && session.issue?.replace("#", "") === String(issue) && session.column !== "Done") return true;
  }
  return false;
}

/** Who would take an issue and by what it is his, then what it waits for. */
export function whoTakes({ profile, agent, matchedBy, ready, reasons }: Pick<BacklogEntry, "profile" | "agent" | "matchedBy" | "ready" | "reasons">): string {
  const taker = profile ?? agent;
  const who = taker ? `${taker} would take it${matchedBy ? ` (${matchedBy})` : ""}` : ready ? "somebody would take it" : "";
  const why = ready ? [] : reasons;
  return [who, ...why].filter(Boolean).join("; ");
}
