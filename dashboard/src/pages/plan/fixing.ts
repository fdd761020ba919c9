/** Fixing runs in words. Pure. */
import type { Fix, FixGroup } from "../../api/types";
import type { Tone } from "../../ui/badge";

const STATES: Record<Fix["state"], [word: string, tone: Tone]> = {
  measuring: ["Measuring", "work"],
  working: ["Fixing", "work"],
  green: ["Green", "ready"],
  left: ["Some left", "needs"],
  review: ["Ready for review", "review"],
  measured: ["Measured", "plain"],
  not_set_up: ["Environment not set up", "needs"],
  stopped: ["Stopped", "plain"],
  failed: ["Failed", "bad"],
};

export const fixWord = (state: Fix["state"]): string => STATES[state][0];
export const fixTone = (state: Fix["state"]): Tone => STATES[state][1];

const OUTCOMES: Record<NonNullable<FixGroup["outcome"]>, [word: string, tone: Tone]> = {
  landed: ["Landed", "ready"],
  ready: ["Ready for review", "review"],
  failed: ["Not fixed", "bad"],
  stopped: ["Stopped", "plain"],
  later: ["In a later round", "plain"],
};

export const outcome = (group: FixGroup): [word: string, tone: Tone] | null => (group.outcome ? OUTCOMES[group.outcome] : null);

const SAYS_LITTLE = new Set(["queued", "limited", "failed", "interrupted", "stuck", "needs_input", "blocked"]);

/** What is the matter with a cause that has not landed, where its outcome or its session's status does not say it. */
export function matter(group: Pick<FixGroup, "outcome" | "reason" | "status" | "why">): string | null {
  if (group.outcome === "landed") return null;
  return group.reason ?? (group.status && SAYS_LITTLE.has(group.status) ? group.why : null);
}

const failures = (count: number) => `${count} failure${count === 1 ? "" : "s"}`;

/** What failed at first, and what fails now. */
export function course({ before, after, rounds }: Pick<Fix, "before" | "after" | "rounds">): string {
  if (before === null) return "nothing is measured yet";
  if (before === 0) return Object.keys(rounds.at(-1)?.problems ?? {}).length ? "not everything could be run" : "nothing fails";
  return rounds.length < 2 || after === null ? failures(before) : `${before} → ${failures(after)}`;
}

/** The same of each tool that found something. */
export const byTool = (fix: Pick<Fix, "tools" | "rounds">): string[] =>
  fix.tools
    .filter((tool) => tool.before || tool.after || tool.problem)
    .map((tool) => (tool.problem ? `${tool.name} could not be run: ${tool.problem}` : `${tool.name} ${fix.rounds.length < 2 ? (tool.before ?? 0) : `${tool.before ?? 0} → ${tool.after ?? 0}`}`));
