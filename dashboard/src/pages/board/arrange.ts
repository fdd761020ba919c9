/** Which cards stand where, and in which order. Pure. */
import type { BoardSession, Question } from "../../api/types";
import type { Tone } from "../../ui/badge";
import { matches, type Filter } from "./filter";
import { mergeOffer } from "./next";
import { questionKey } from "./words";

export const COLUMNS = [
  { name: "Needs you", short: "Needs you", tone: "needs", empty: "Nothing waits for you" },
  { name: "Working", short: "Working", tone: "work", empty: "No agent is at work" },
  { name: "In review", short: "Review", tone: "review", empty: "Nothing is under review" },
  { name: "Ready to merge", short: "Ready", tone: "ready", empty: "Nothing is ready to merge" },
  { name: "Done", short: "Done", tone: "plain", empty: "Nothing has landed yet" },
] as const satisfies readonly { name: string; short: string; tone: Tone; empty: string }[];

export type ColumnName = (typeof COLUMNS)[number]["name"];

export interface Card {
  session: BoardSession;
  questions: readonly Question[];
}

export interface Group {
  /** What the cards have in common; empty where they are not grouped. */
  title: string;
  cards: readonly Card[];
}

export interface Arranged {
  name: ColumnName;
  groups: readonly Group[];
  count: number;
}

const QUIET = new Set(["idle", "exited"]);
const NO_QUESTIONS: readonly Question[] = [];

/** It waits for a look, and calls nobody. */
export const isQuiet = ({ session, questions }: Card): boolean => QUIET.has(session.status) && !questions.length;

/** Since when a person is waited for. */
export const waitsSince = ({ session, questions }: Card): string => questions[0]?.since ?? session.evidence.at ?? session.updatedAt;

type Asked = ReadonlyMap<string, readonly Question[]>;

/** Each session's questions, oldest first. Where nothing changed the list stays the same object, so that its card is not drawn anew. */
export function questionsOf(questions: readonly Question[], before: Asked): Asked {
  const after = new Map<string, Question[]>();
  for (const question of questions) after.set(question.session, [...(after.get(question.session) ?? []), question]);
  return new Map([...after].map(([session, mine]) => [session, same(before.get(session), mine) ?? mine]));
}

function same(before: readonly Question[] | undefined, after: readonly Question[]): readonly Question[] | null {
  if (before?.length !== after.length) return null;
  return before.every((one, index) => JSON.stringify(one) === JSON.stringify(after[index])) ? before : null;
}

/** It plans, delegates and watches; it makes no change that would go through the columns. */
export const isCoordinator = (session: Pick<BoardSession, "kind">): boolean => session.kind === "coordinator";

/** The coordinating agents that were not stopped, by project. */
export function coordinators(sessions: Iterable<BoardSession>, asked: Asked, project: string): Card[] {
  return [...sessions]
    .filter((session) => isCoordinator(session) && session.column !== "Done" && (!project || session.project === project))
    .sort((a, b) => by(a.project, b.project))
    .map((session) => ({ session, questions: asked.get(session.id) ?? NO_QUESTIONS }));
}

/** All columns, filtered, grouped and in order. */
export function arrange(sessions: Iterable<BoardSession>, asked: Asked, filter: Filter): Arranged[] {
  const columns = new Map<string, Card[]>(COLUMNS.map(({ name }) => [name, []]));
  for (const session of sessions) {
    if (!isCoordinator(session) && matches(session, filter)) columns.get(session.column)?.push({ session, questions: asked.get(session.id) ?? NO_QUESTIONS });
  }
  return COLUMNS.map(({ name }) => {
    const cards = columns.get(name)!.sort(ORDERS[name] ?? eldest);
    return { name, groups: grouped(cards, filter.group), count: cards.length };
  });
}

/** The order does not change while an agent works, so that nothing jumps. */
const eldest = (a: Card, b: Card) => by(a.session.createdAt, b.session.createdAt) || by(a.session.id, b.session.id);

const ORDERS: Partial<Record<ColumnName, (a: Card, b: Card) => number>> = {
  "Needs you": (a, b) => Number(isQuiet(a)) - Number(isQuiet(b)) || by(waitsSince(a), waitsSince(b)) || eldest(a, b),
  Done: (a, b) => by(b.session.updatedAt, a.session.updatedAt) || eldest(a, b),
};

const by = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

function grouped(cards: readonly Card[], group: Filter["group"]): Group[] {
  if (!group) return cards.length ? [{ title: "", cards }] : [];
  const groups = new Map<string, Card[]>();
  for (const card of cards) {
    const title = group === "project" ? card.session.project : profileOf(card.session);
    groups.set(title, [...(groups.get(title) ?? []), card]);
  }
  return [...groups].sort(([a], [b]) => by(a, b)).map(([title, mine]) => ({ title, cards: mine }));
}

/** A profile where there is one, else the agent. */
export const profileOf = (session: BoardSession): string => session.profile ?? session.agent;

/** The sessions that call for a person, each with what tells one call from the next. */
export function calls(sessions: Iterable<BoardSession>, questions: readonly Question[]): Map<string, { session: BoardSession; question: Question | null }> {
  const found = new Map<string, { session: BoardSession; question: Question | null }>();
  const known = new Map([...sessions].map((session) => [session.id, session]));
  const asking = new Set<string>();
  for (const question of questions) {
    const session = known.get(question.session);
    if (!session || mergeOffer(session, question)) continue;
    asking.add(session.id);
    found.set(questionKey(question), { session, question });
  }
  for (const session of known.values()) {
    if (session.column !== "Needs you" || QUIET.has(session.status) || asking.has(session.id)) continue;
    found.set(`${session.id} ${session.status}`, { session, question: null });
  }
  return found;
}
