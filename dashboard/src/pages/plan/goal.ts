/** What a plan is to be made of, as a form has it and as the daemon is asked. Pure. */
export interface Goal {
  project: string;
  goal: string;
  fromIssues: boolean;
  agent: string;
}

export const NO_GOAL: Goal = { project: "", goal: "", fromIssues: false, agent: "" };

/** What was left open is not said. */
export const asRequest = ({ project, goal, fromIssues, agent }: Goal): Record<string, string | boolean> => ({
  projectId: project,
  ...(goal.trim() ? { goal: goal.trim() } : {}),
  ...(fromIssues ? { fromIssues } : {}),
  ...(agent ? { agent } : {}),
});

/** What is missing before it can be asked for, or null. */
export function lacks(goal: Goal): string | null {
  if (!goal.project) return "Choose a project";
  return goal.goal.trim() || goal.fromIssues ? null : "Say what is to be achieved, or plan the open issues";
}
