/** One plan: how it comes about, its tasks to be looked at and changed, and how far they are once it was applied. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { Link, useLocation } from "wouter";

import { api, ApiError, path } from "../../api/client";
import type { Backlog, Plan } from "../../api/types";
import { may } from "../../auth";
import { useBoard } from "../../live/store";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { cx } from "../../ui/cx";
import { Dialog } from "../../ui/dialog";
import { Empty } from "../../ui/empty";
import { Loading } from "../../ui/loading";
import { dollars, tokens } from "../../ui/numbers";
import { Heading, Page, Section } from "../../ui/page";
import { ProblemNote } from "../../ui/problem";
import { Ago } from "../../ui/time";
import { attempt, toast } from "../../ui/toast";
import { Apply, type How } from "./apply";
import { NewPlan } from "./new_plan";
import { PlanGraph, show, type Row } from "./plan_graph";
import { TaskForm } from "./task_form";
import { TaskTable } from "./task_table";
import { called, faults, fresh, rest, standing, stateTone, stateWord, subject, summary, without, withTask, type Said } from "./tasks";

export function OnePlan({ id }: { id: string }) {
  const { data: plan, error } = useQuery({ queryKey: ["fleet", "plans", id], queryFn: () => api.get<Plan>(path`/api/plans/${id}`) });
  if (error instanceof ApiError && error.status === 404) {
    return (
      <Page>
        <Empty title={`There is no plan ${id}`}>
          <Link href="/plan" className="text-accent underline">
            All plans
          </Link>
        </Empty>
      </Page>
    );
  }
  if (error) {
    return (
      <Page>
        <ProblemNote error={error} />
      </Page>
    );
  }
  return plan ? <Shown plan={plan} /> : <Loading label="Loading" />;
}

function Shown({ plan }: { plan: Plan }) {
  return (
    <Page>
      <div className="flex flex-col gap-2">
        <Link href="/plan" className="w-fit text-sm text-ink-soft hover:text-ink hover:underline">
          ← All plans
        </Link>
        <Heading title={called(plan)}>
          <Actions plan={plan} />
        </Heading>
        <Facts plan={plan} />
      </div>
      <Goal plan={plan} />
      {plan.state === "planning" && <Waiting plan={plan} />}
      {plan.state === "applying" && <Waiting plan={plan} />}
      {plan.state === "failed" && <Failed plan={plan} />}
      {plan.state === "draft" && plan.error && <ProblemNote error={`It was not applied: ${plan.error}`} />}
      <Notes plan={plan} />
      {plan.tasks.length > 0 && <Tasks plan={plan} />}
    </Page>
  );
}

function Facts({ plan }: { plan: Plan }) {
  const sessions = useBoard((board) => board.sessions);
  const { input, output, usd } = plan.usage;
  return (
    <p className="flex flex-wrap items-center gap-x-3 gap-y-1 text-sm text-ink-soft">
      <Badge tone={stateTone(plan.state)}>{stateWord(plan.state)}</Badge>
      {plan.state !== "failed" && plan.state !== "planning" && <span>{summary({ ...plan, error: null }, sessions)}</span>}
      <span>
        {plan.id} of {plan.project}
        {plan.agent && `, planned by ${plan.agent}`}
      </span>
      {input + output > 0 && <span>{usd === null ? `${tokens(input + output)} tokens` : dollars(usd)}</span>}
      <span>
        <Ago at={plan.createdAt} />
      </span>
    </p>
  );
}

/** More of the goal than it is called by. */
function Goal({ plan }: { plan: Plan }) {
  const [all, setAll] = useState(false);
  const text = rest(plan);
  const long = text.length > 400 || text.split("\n").length > 5;
  if (!text) return null;
  return (
    <div className="max-w-prose text-ink-soft">
      <p className={cx("break-words whitespace-pre-wrap", long && !all && "line-clamp-4")}>{text}</p>
      {long && (
        <Button small look="quiet" className="-ml-2" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Less of the goal" : "The whole goal"}
        </Button>
      )}
    </div>
  );
}

function Actions({ plan }: { plan: Plan }) {
  const [asked, setAsked] = useState<"apply" | "discard" | null>(null);
  const known = useQueryClient();
  const [, go] = useLocation();
  if (!may("operator")) return null;
  const apply = async (how: How) => {
    const after = await api.post<Plan>(path`/api/plans/${plan.id}/apply`, how);
    known.setQueryData(["fleet", "plans", plan.id], after);
    setAsked(null);
    toast.done(after.state === "applied" ? "Its tasks are issues now" : "Its issues are being made");
  };
  const discard = async () => {
    setAsked(null);
    if (!(await attempt(() => api.delete(path`/api/plans/${plan.id}`), `${plan.id} is discarded`))) return;
    await known.invalidateQueries({ queryKey: ["fleet", "plans"], exact: true });
    go("/plan");
  };
  return (
    <>
      {["planning", "draft", "failed"].includes(plan.state) && <Button onClick={() => setAsked("discard")}>{plan.state === "planning" ? "Stop planning" : "Discard"}</Button>}
      {plan.state === "draft" && (
        <Button look="primary" onClick={() => setAsked("apply")}>
          Apply…
        </Button>
      )}
      {asked === "apply" && <Apply plan={plan} onApply={apply} onClose={() => setAsked(null)} />}
      <Dialog open={asked === "discard"} onClose={() => setAsked(null)} title={`Discard ${plan.id}?`}>
        <p className="text-ink-soft">Nothing was made of it yet, and nothing will be. The repository and its issues stay as they are.</p>
        <div className="flex justify-end gap-2">
          <Button onClick={() => setAsked(null)}>Keep it</Button>
          <Button look="danger" onClick={() => void discard()}>
            Discard it
          </Button>
        </div>
      </Dialog>
    </>
  );
}

function Waiting({ plan }: { plan: Plan }) {
  return (
    <div role="status" className="flex items-center gap-3 rounded-xl border border-line bg-surface p-4 shadow-card">
      <span className="size-3 shrink-0 animate-pulse rounded-full bg-work" aria-hidden />
      <p className="min-w-0 flex-1 break-words">
        {plan.progress ?? (plan.state === "planning" ? "It begins" : "Its issues are being made")} …
        {plan.state === "planning" && <span className="block text-sm text-ink-soft">The tasks stand here when they are ready; you need not wait.</span>}
      </p>
    </div>
  );
}

function Failed({ plan }: { plan: Plan }) {
  const [again, setAgain] = useState(false);
  const [before, ...wrong] = (plan.error ?? "").split("cannot be used: ");
  return (
    <div role="alert" className="flex flex-col gap-3 rounded-xl border border-bad/40 bg-surface p-4 shadow-card">
      <p className="font-medium text-bad">No plan came of it.</p>
      {wrong.length > 0 ? (
        <div className="text-sm">
          <p>{before}cannot be used:</p>
          <ul className="list-disc pl-5 break-words">
            {faults(plan.error ?? "").map((one) => (
              <li key={one}>{one}</li>
            ))}
          </ul>
        </div>
      ) : (
        <p className="text-sm break-words whitespace-pre-wrap">{plan.error}</p>
      )}
      {may("operator") && (
        <div>
          <Button look="primary" onClick={() => setAgain(true)}>
            Plan again
          </Button>
        </div>
      )}
      <NewPlan open={again} onClose={() => setAgain(false)} instead={plan.id} initial={{ project: plan.project, goal: plan.goal, fromIssues: !plan.goal, agent: plan.agent ?? "" }} />
    </div>
  );
}

/** What a person should know before it is applied, as far as it does not stand at a task. */
function Notes({ plan }: { plan: Plan }) {
  const notes = plan.notes.filter((note) => subject(note, plan.tasks) === null);
  if (notes.length === 0) return null;
  return (
    <Section title="To be known">
      <ul className="list-disc pl-5 text-sm break-words">
        {notes.map((note) => (
          <li key={note}>{note}</li>
        ))}
      </ul>
    </Section>
  );
}

function useRows(plan: Plan): Row[] {
  const sessions = useBoard((board) => board.sessions);
  const applied = plan.state === "applied";
  const { data } = useQuery({
    queryKey: ["fleet", "backlog", plan.project],
    queryFn: () => api.get<Backlog>("/api/backlog", { project: plan.project }),
    enabled: applied,
  });
  return useMemo(() => {
    const waiting = new Map(data?.entries.map((entry) => [entry.issue, entry]));
    return plan.tasks.map((task) => {
      const session = sessions.get(task.sessions.at(-1) ?? "");
      return { task, session, stands: applied ? standing(task, session, waiting.get(task.issue ?? -1)) : null };
    });
  }, [plan, sessions, data, applied]);
}

function Tasks({ plan }: { plan: Plan }) {
  const rows = useRows(plan);
  const known = useQueryClient();
  const [editing, setEditing] = useState<Said | null>(null);
  const change = plan.state === "draft" && may("operator");
  const edited = useRef<Said | null>(null);
  /** When the form is gone, the keyboard is where its task stands. */
  useEffect(() => {
    if (!editing && edited.current) show(edited.current, "nearest");
    edited.current = editing;
  }, [editing]);
  const close = () => setEditing(null);
  const put = async (tasks: Said[]) => {
    known.setQueryData(["fleet", "plans", plan.id], await api.put<Plan>(path`/api/plans/${plan.id}`, { tasks }));
    close();
  };
  const isNew = editing !== null && !plan.tasks.some((one) => one.id === editing.id);
  const form = change && editing && (
    <TaskForm
      key={editing.id}
      task={editing}
      tasks={plan.tasks}
      project={plan.project}
      onSave={(task) => put(withTask(plan.tasks, task))}
      onCancel={close}
      onRemove={isNew ? undefined : () => put(without(plan.tasks, editing.id))}
    />
  );
  return (
    <>
      <Section title="In which order" about="Lines lead to what comes after.">
        <PlanGraph rows={rows} />
      </Section>
      <Section
        title="Tasks"
        about={plan.state === "draft" && "Nothing is done before the plan is applied."}
        action={
          change && (
            <Button small disabled={editing !== null} onClick={() => setEditing(fresh(plan.tasks))}>
              Add a task
            </Button>
          )
        }
      >
        <TaskTable plan={plan} rows={rows} editing={isNew ? null : (editing?.id ?? null)} form={form} onEdit={setEditing} />
        {isNew && <div className="mt-3">{form}</div>}
      </Section>
    </>
  );
}
