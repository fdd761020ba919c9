/** Which loaded details are out of date after a frame. Pure. */
import type { Live } from "../api/types";

const FLEETING: Record<string, string> = { "plan-progress": "plans", "fix-progress": "fixes" };

/** The keys of what is to be loaded anew. What is fleeting is only where it is shown; any event may concern the whole fleet. */
export function stale(touched: Live["touched"]): string[][] {
  const sessions = Object.keys(touched).filter(Boolean);
  const others = touched[""] ?? [];
  const fleet = sessions.length > 0 || others.some((kind) => !(kind in FLEETING));
  return [...sessions.map((id) => ["session", id]), ...(fleet ? [["fleet"]] : others.map((kind) => ["fleet", FLEETING[kind]!]))];
}
