/** A goal that an agent is to make tasks of. */
import { useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { useLocation } from "wouter";

import { api, path } from "../../api/client";
import type { Plan } from "../../api/types";
import { useBoard } from "../../live/store";
import { Button } from "../../ui/button";
import { cx } from "../../ui/cx";
import { Dialog } from "../../ui/dialog";
import { FIELD, Form, Labelled } from "../../ui/form";
import { ProblemNote } from "../../ui/problem";
import { AgentChoice } from "../board/new_task";
import { asRequest, lacks, NO_GOAL, type Goal } from "./goal";

interface Props {
  open: boolean;
  onClose: () => void;
  /** What is known already, where a plan is to be made again. */
  initial?: Partial<Goal>;
  /** The plan that this one takes the place of. */
  instead?: string;
}

export function NewPlan({ open, onClose, initial, instead }: Props) {
  return (
    <Dialog open={open} onClose={onClose} title={instead ? "Plan again" : "New plan"}>
      {open && <GoalForm initial={initial} instead={instead} onClose={onClose} />}
    </Dialog>
  );
}

function GoalForm({ initial, instead, onClose }: { initial: Partial<Goal> | undefined; instead: string | undefined; onClose: () => void }) {
  const projects = useBoard((board) => board.overview?.projects);
  const [given, setGiven] = useState<Goal>({ ...NO_GOAL, ...initial });
  const [key] = useState(() => crypto.randomUUID());
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [, go] = useLocation();
  const known = useQueryClient();
  const id = useId();
  const set = (change: Partial<Goal>) => setGiven((before) => ({ ...before, ...change }));
  const goal = { ...given, project: given.project || projects?.[0]?.id || "" };

  const submit = async () => {
    const missing = lacks(goal);
    if (missing) return setError(missing);
    setBusy(true);
    setError(null);
    try {
      const made = await api.post<Plan>("/api/plans", asRequest(goal), key);
      if (instead) await api.delete(path`/api/plans/${instead}`).catch(() => undefined);
      await known.invalidateQueries({ queryKey: ["fleet", "plans"] });
      onClose();
      go(path`/plan/${made.id}`);
    } catch (failed) {
      setError(failed);
    }
    setBusy(false);
  };
  return (
    <Form onSubmit={submit}>
      <Labelled
        id={`${id}-goal`}
        label={goal.fromIssues ? "What matters (optional)" : "What is to be achieved"}
        hint="An agent reads the repository, changes nothing, and proposes tasks. You look at them before anything is done."
      >
        <textarea
          id={`${id}-goal`}
          autoFocus
          rows={5}
          value={goal.goal}
          onChange={(event) => set({ goal: event.target.value })}
          aria-describedby={`${id}-goal-hint`}
          className={cx(FIELD, "field-sizing-content max-h-[40vh] min-h-28 resize-y py-2 leading-snug")}
        />
      </Labelled>
      <label className="flex min-h-6 items-center gap-2 text-sm">
        <input type="checkbox" checked={goal.fromIssues} onChange={(event) => set({ fromIssues: event.target.checked })} />
        Make the plan of the open issues
      </label>
      <div className="grid gap-4 sm:grid-cols-2">
        <Labelled id={`${id}-project`} label="Project">
          <select id={`${id}-project`} value={goal.project} onChange={(event) => set({ project: event.target.value, agent: "" })} className={FIELD}>
            {projects?.map((project) => (
              <option key={project.id} value={project.id}>
                {project.name}
              </option>
            ))}
          </select>
        </Labelled>
        <AgentChoice id={`${id}-agent`} label="Planned by" project={goal.project} value={goal.agent} onChange={(agent) => set({ agent })} />
      </div>
      {error ? <ProblemNote error={error} /> : null}
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={busy}>
          Plan
        </Button>
      </div>
    </Form>
  );
}
