/** What is wanted: goals and the plans for them, tasks with what they come after and will conflict with, and the issues that nobody has taken yet. */
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "wouter";

import { api, path } from "../../api/client";
import type { Backlog, Tasks } from "../../api/types";
import { may } from "../../auth";
import { useCommands, type Command } from "../../keys";
import { useBoard } from "../../live/store";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { Empty } from "../../ui/empty";
import { Loading } from "../../ui/loading";
import { Heading, Page, Section } from "../../ui/page";
import { ProblemNote } from "../../ui/problem";
import { attempt } from "../../ui/toast";
import { NewTask } from "../board/new_task";
import { FreeTasks, TaskGraph } from "./drawing";
import { FixList } from "./fixes";
import { graphOf, takenBy, whoTakes } from "./graph";
import { NewPlan } from "./new_plan";
import { OnePlan } from "./one";
import { PlanList } from "./plans";

export default function Plan({ id }: { id: string | undefined }) {
  return id ? <OnePlan key={id} id={id} /> : <Everything />;
}

function Everything() {
  const [making, setMaking] = useState<"plan" | "task" | null>(null);
  const commands = useMemo<Command[]>(
    () =>
      may("operator")
        ? [
            { id: "new plan", label: "New plan", group: "Plan", keys: "p", run: () => setMaking("plan") },
            { id: "new task", label: "New task", group: "Plan", keys: "n", run: () => setMaking("task") },
          ]
        : [],
    [],
  );
  useCommands(commands);
  const close = () => setMaking(null);
  return (
    <Page>
      <Heading title="Plan" about="What is wanted, in which order, and who would take it.">
        {may("operator") && (
          <>
            <Button onClick={() => setMaking("task")}>New task</Button>
            <Button look="primary" onClick={() => setMaking("plan")}>
              New plan
            </Button>
          </>
        )}
      </Heading>
      <PlanList />
      <OpenTasks />
      <OpenIssues />
      <FixList />
      <NewTask open={making === "task"} onClose={close} />
      <NewPlan open={making === "plan"} onClose={close} />
    </Page>
  );
}

function OpenTasks() {
  const tasks = useQuery({ queryKey: ["fleet", "tasks"], queryFn: () => api.get<Tasks>("/api/tasks") });
  const sessions = useBoard((board) => board.sessions);
  const graph = useMemo(() => graphOf(tasks.data?.tasks ?? [], sessions), [tasks.data, sessions]);
  return (
    <Section title="Tasks" about={graph.nodes.length > 0 && "Lines lead to what comes after; dashed lines are predicted conflicts."}>
      {tasks.isPending ? (
        <Loading label="Loading" />
      ) : tasks.error ? (
        <ProblemNote error={tasks.error} />
      ) : graph.nodes.length + graph.free.length === 0 ? (
        <Empty title="Nothing is being worked on">
          <p>New tasks, and issues that an agent takes, stand here until they are done.</p>
        </Empty>
      ) : (
        <div className="flex flex-col gap-4">
          {graph.nodes.length > 0 && <TaskGraph graph={graph} />}
          {graph.free.length > 0 && <FreeTasks nodes={graph.free} />}
        </div>
      )}
    </Section>
  );
}

function OpenIssues() {
  const backlog = useQuery({ queryKey: ["fleet", "backlog"], queryFn: () => api.get<Backlog>("/api/backlog", { all: true }) });
  const take = (project: string, issue: number) => attempt(() => api.post("/api/sessions", { projectId: project, issue }), "An agent takes it");
  const sessions = useBoard((board) => board.sessions);
  const entries = (backlog.data?.entries ?? []).filter((entry) => !takenBy(sessions.values(), entry));
  return (
    <Section title="Backlog" about="Open issues in the order that they would be taken.">
      {backlog.isPending && <Loading label="Loading" />}
      {backlog.error && <ProblemNote error={backlog.error} />}
      {backlog.data && entries.length === 0 && (
        <Empty title="No open issue waits">
          <p>
            <code className="font-mono">ao issue new "what is wanted"</code> opens one.
          </p>
        </Empty>
      )}
      <ol className="flex flex-col divide-y divide-line">
        {entries.map((entry) => (
          <li key={entry.id} className="flex flex-wrap items-center gap-x-3 gap-y-1 py-2">
            <span className="w-6 text-right text-ink-faint">{entry.position}</span>
            <span className="min-w-0 flex-1 basis-52">
              <span className="font-medium">{entry.title}</span> <span className="text-ink-faint">{entry.id}</span>
              <span className="block text-sm text-ink-soft">{whoTakes(entry)}</span>
            </span>
            {entry.plan && (
              <Link href={path`/plan/${entry.plan}`} className="text-xs text-ink-soft underline decoration-line underline-offset-4 hover:decoration-accent">
                {entry.plan}
              </Link>
            )}
            {entry.labels.map((label) => (
              <Badge key={label}>{label}</Badge>
            ))}
            {may("operator") && (
              <Button small onClick={() => void take(entry.project, entry.issue)}>
                Start now
              </Button>
            )}
          </li>
        ))}
      </ol>
    </Section>
  );
}
