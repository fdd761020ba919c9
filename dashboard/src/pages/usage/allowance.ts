/** Accounts and budgets in words. Pure. */
import type { AccountInUse, BudgetInForce } from "../../api/types";
import { dollars, tokens } from "../../ui/numbers";

/** The name by which an account is released: with its model, if only that is held. */
export const accountKey = ({ account, model }: Pick<AccountInUse, "account" | "model">): string => (model ? `${account} ${model}` : account);

const some = (count: number, what: string) => (count ? [`${count} ${what}`] : []);

export const accountLoad = ({ working, waiting }: Pick<AccountInUse, "working" | "waiting">): string =>
  [...some(working, "at work"), ...some(waiting, working ? "waiting" : "wait" + (waiting === 1 ? "s" : ""))].join(", ") || "nobody at work";

const SCOPES: Record<BudgetInForce["scope"], string> = { session: "each session", day: "today", project: "in all" };

/** Whose budget it is: the project or profile, or all of them. */
export function whose({ projects, profile, name }: Pick<BudgetInForce, "projects" | "profile" | "name">): string {
  if (profile) return projects.length === 1 ? `${profile} in ${projects[0]}` : profile;
  return /all projects/.test(name) || projects.length !== 1 ? "All projects" : projects[0]!;
}

export const over = ({ scope }: Pick<BudgetInForce, "scope">): string => SCOPES[scope];

/** Spent and set aside of a budget, in its unit. */
export function figures({ unit, budget, spent, reserved }: Pick<BudgetInForce, "unit" | "budget" | "spent" | "reserved">): string {
  const show = unit === "usd" ? dollars : tokens;
  const suffix = unit === "usd" ? "" : " tokens";
  if (spent === null) return `${show(budget)}${suffix} at most`;
  return `${show(spent)} spent${reserved ? `, ${show(reserved)} reserved` : ""} of ${show(budget)}${suffix}`;
}

/** What of a budget is gone, for a bar: parts of a hundred that never add up to more. */
export function shares({ budget, spent, reserved }: Pick<BudgetInForce, "budget" | "spent" | "reserved">): { spent: number; reserved: number } {
  const part = (value: number | null) => (budget > 0 ? Math.max(0, (100 * (value ?? 0)) / budget) : 100);
  const gone = Math.min(100, part(spent));
  return { spent: gone, reserved: Math.min(100 - gone, part(reserved)) };
}
