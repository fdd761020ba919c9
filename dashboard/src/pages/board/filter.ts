/** Which cards are asked for, as the address says it. Pure. */
import type { BoardSession } from "../../api/types";
import { statusWord } from "./words";

export interface Filter {
  text: string;
  project: string;
  agent: string;
  status: string;
  group: "" | "project" | "profile";
}

export const EVERYTHING: Filter = { text: "", project: "", agent: "", status: "", group: "" };

const NAMES: Record<keyof Filter, string> = { text: "q", project: "project", agent: "agent", status: "status", group: "group" };

export function fromQuery(query: URLSearchParams): Filter {
  const of = (key: keyof Filter) => query.get(NAMES[key]) ?? "";
  const group = of("group");
  return { text: of("text"), project: of("project"), agent: of("agent"), status: of("status"), group: group === "project" || group === "profile" ? group : "" };
}

/** The query with this filter in it; what else is there stays. */
export function intoQuery(query: URLSearchParams, filter: Filter): URLSearchParams {
  const next = new URLSearchParams(query);
  for (const key of Object.keys(NAMES) as (keyof Filter)[]) {
    if (filter[key]) next.set(NAMES[key], filter[key]);
    else next.delete(NAMES[key]);
  }
  return next;
}

/** Does it leave cards out? */
export const narrows = (filter: Filter): boolean => !!(filter.text || filter.project || filter.agent || filter.status);

export function matches(session: BoardSession, filter: Filter): boolean {
  if (filter.project && session.project !== filter.project) return false;
  if (filter.agent && filter.agent !== session.agent && filter.agent !== session.profile) return false;
  if (filter.status && session.status !== filter.status) return false;
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const all = [session.id, session.title, session.branch, session.agent, session.profile, session.issue, statusWord(session.status), session.says, session.pr && `#${session.pr.number}`]
    .filter(Boolean)
    .join(" ")
    .toLowerCase();
  return words.every((word) => all.includes(word));
}
