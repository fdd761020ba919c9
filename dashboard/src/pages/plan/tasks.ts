/** A plan's tasks: how they are changed, how far they are, and which words are about which. Pure. */
import type { BacklogEntry, BoardSession, Plan, PlannedTask } from "../../api/types";
import type { Tone } from "../../ui/badge";
import { statusTone, statusWord } from "../board/words";

/** What a person may say of a task, and the daemon takes. */
export type Said = Pick<PlannedTask, "id" | "title" | "description" | "acceptance" | "dependencies" | "effort" | "labels" | "files" | "profile" | "priority" | "issue">;

export const said = ({ id, title, description, acceptance, dependencies, effort, labels, files, profile, priority, issue }: PlannedTask): Said => ({
  id,
  title,
  description,
  acceptance,
  dependencies,
  effort,
  labels,
  files,
  profile,
  priority,
  issue,
});

/** The tasks with this one in its place, or at the end if it is new. */
export function withTask(tasks: readonly PlannedTask[], task: Said): Said[] {
  const known = tasks.some((one) => one.id === task.id);
  const others = tasks.map((one) => (one.id === task.id ? task : said(one)));
  return known ? others : [...others, task];
}

/** The tasks without this one; nothing waits for it any more. */
export const without = (tasks: readonly PlannedTask[], id: string): Said[] =>
  tasks.filter((one) => one.id !== id).map((one) => ({ ...said(one), dependencies: one.dependencies.filter((other) => other !== id) }));

/** An empty task with an id that no other has. */
export function fresh(tasks: readonly PlannedTask[]): Said {
  const taken = new Set(tasks.map((one) => one.id));
  let number = tasks.length + 1;
  while (taken.has(`t${number}`)) number += 1;
  return { id: `t${number}`, title: "", description: "", acceptance: [], dependencies: [], effort: "medium", labels: [], files: [], profile: null, priority: 0, issue: null };
}

/** One a line. */
export const lines = (text: string): string[] => text.split("\n").map((one) => one.trim()).filter(Boolean);
/** One after each comma. */
export const listed = (text: string): string[] => text.split(",").map((one) => one.trim()).filter(Boolean);

/** What is wrong with a plan, as the daemon lists it: `this plan cannot be used: …; …`. */
export function faults(message: string): string[] {
  const list = /cannot be used: (.*)$/s.exec(message)?.[1] ?? message;
  return list.split("; ").map((one) => one.trim()).filter(Boolean);
}

/** Is that task named in it? */
export const isAbout = (text: string, id: string): boolean => {
  const name = id.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`(?<![\\w.-])${name}(?![\\w-])`).test(text);
};

/** The task that stands first in a note, at which it is shown; null: it is about the plan. */
export function subject(note: string, tasks: readonly Pick<PlannedTask, "id">[]): string | null {
  const named = tasks.filter((task) => isAbout(note, task.id)).map((task) => ({ id: task.id, at: note.indexOf(task.id) }));
  return named.sort((a, b) => a.at - b.at)[0]?.id ?? null;
}

/** Does it say it of this task rather than of another that has to do with it? */
export const concerns = (fault: string, id: string): boolean => {
  const subject = /^task (\S+?):?(?:\s|$)/.exec(fault)?.[1];
  return subject === undefined ? isAbout(fault, id) : subject === id;
};

/** All tasks that cannot come before this one without a circle: itself, and whatever waits for it. */
export function dependents(tasks: readonly Pick<PlannedTask, "id" | "dependencies">[], id: string): Set<string> {
  const found = new Set([id]);
  for (let grown = true; grown; ) {
    grown = false;
    for (const one of tasks) {
      if (!found.has(one.id) && one.dependencies.some((other) => found.has(other))) {
        found.add(one.id);
        grown = true;
      }
    }
  }
  return found;
}

export interface Standing {
  word: string;
  tone: Tone;
  /** What it waits for, or what is the matter. */
  why: string | null;
  done: boolean;
  /** Nobody takes it by himself, so a person may have it begun. */
  waitsForYou?: boolean;
}

/** Whoever is so waits for something that its status does not say. */
const HELD = new Set(["queued", "limited"]);

/** How far a task of an applied plan is: by its newest session as the board knows it, else by what the backlog says of its issue. */
export function standing(task: PlannedTask, session: BoardSession | undefined, entry: BacklogEntry | undefined): Standing {
  if (task.status === "done" || session?.status === "merged") return { word: "Landed", tone: "ready", why: null, done: true };
  if (session) {
    const waits = HELD.has(session.status) && session.waitingFor;
    const why = waits ? `waits for ${waits}` : session.column === "Needs you" || session.column === "Done" ? session.why : null;
    return { word: statusWord(session.status), tone: statusTone(session.status), why, done: false };
  }
  if (entry?.ready && entry.reasons.length > 0) return { word: "Ready", tone: "plain", why: null, done: false, waitsForYou: true };
  if (entry && !entry.ready) return { word: "Waits", tone: "plain", why: entry.reasons.join("; "), done: false };
  if (task.status === "waiting") return { word: "Waits", tone: "plain", why: null, done: false };
  if (task.status === "ready" || entry) return { word: "Next", tone: "plain", why: null, done: false };
  return { word: task.status ? statusWord(task.status) : "Not started", tone: "plain", why: null, done: false };
}

const STATES: Record<Plan["state"], [word: string, tone: Tone]> = {
  planning: ["Planning", "work"],
  draft: ["Draft", "review"],
  failed: ["Failed", "bad"],
  applying: ["Applying", "work"],
  applied: ["Applied", "ready"],
  discarded: ["Discarded", "plain"],
};

export const stateWord = (state: Plan["state"]): string => STATES[state][0];
export const stateTone = (state: Plan["state"]): Tone => STATES[state][1];

const counted = (count: number, what: string) => `${count} ${what}${count === 1 ? "" : "s"}`;

/** A plan in a few words, for a list. */
export function summary(plan: Plan, sessions: ReadonlyMap<string, BoardSession>): string {
  switch (plan.state) {
    case "planning":
    case "applying":
      return plan.progress ?? (plan.state === "planning" ? "begins" : "makes its issues");
    case "failed":
      return plan.error ?? "no plan came of it";
    case "applied": {
      const landed = plan.tasks.filter((task) => standing(task, sessions.get(task.sessions.at(-1) ?? ""), undefined).done).length;
      return landed < plan.tasks.length ? `${landed} of ${counted(plan.tasks.length, "task")} landed` : landed === 1 ? "its task landed" : `all ${landed} tasks landed`;
    }
    default:
      return counted(plan.tasks.length, "task") + (plan.error ? `; not applied: ${plan.error}` : "");
  }
}

/** What a plan is called: the first line of its goal. */
export function called({ goal }: Pick<Plan, "goal">): string {
  const line = goal.trim().split("\n")[0]!;
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 1).trimEnd()}…` : line || "The open issues";
}

const LONGEST = 100;

/** What the goal says beyond what the plan is called by. */
export function rest({ goal }: Pick<Plan, "goal">): string {
  const [line, ...more] = goal.trim().split("\n");
  return (line!.length > LONGEST ? goal : more.join("\n")).trim();
}
