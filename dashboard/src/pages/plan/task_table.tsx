/** A plan's tasks in rows: what each is, what it comes after, who takes it; once applied, how far it is and why it waits. */
import type { ReactNode } from "react";

import { api } from "../../api/client";
import type { Plan, PlannedTask } from "../../api/types";
import { may } from "../../auth";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { SessionLink } from "../../ui/session_link";
import { spoken } from "../../ui/time";
import { attempt } from "../../ui/toast";
import { rowId, type Row } from "./plan_graph";
import { subject } from "./tasks";

interface Props {
  plan: Plan;
  rows: readonly Row[];
  /** The task that is being changed, and its form. */
  editing: string | null;
  form: ReactNode;
  onEdit: (task: PlannedTask) => void;
}

export function TaskTable({ plan, rows, editing, form, onEdit }: Props) {
  const applied = plan.state === "applied";
  const titles = new Map(plan.tasks.map((task) => [task.id, task.title]));
  const change = plan.state === "draft" && may("operator");
  return (
    <table className="w-full text-sm">
      <thead className="text-left text-ink-soft max-sm:sr-only">
        <tr>
          <Th>Task</Th>
          <Th wide>After</Th>
          {applied ? <Th>How far</Th> : <Th wide>For</Th>}
          {change && (
            <Th>
              <span className="sr-only">Change it</span>
            </Th>
          )}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) =>
          row.task.id === editing ? (
            <tr key={row.task.id} className="border-t border-line">
              <td colSpan={4} className="py-2">
                {form}
              </td>
            </tr>
          ) : (
            <tr key={row.task.id} id={rowId(row.task)} tabIndex={-1} className="border-t border-line align-top">
              <th scope="row" className="py-2 pr-3 text-left font-normal">
                <About task={row.task} titles={titles} applied={applied} notes={plan.notes.filter((note) => subject(note, plan.tasks) === row.task.id)} />
              </th>
              <td className="w-36 py-2 pr-3 text-ink-soft max-sm:hidden">
                <After task={row.task} titles={titles} />
              </td>
              {applied ? (
                <td className="w-40 py-2 sm:w-64">
                  <HowFar row={row} project={plan.project} />
                </td>
              ) : (
                <td className="w-36 py-2 pr-3 text-ink-soft max-sm:hidden">
                  <For task={row.task} />
                </td>
              )}
              {change && (
                <td className="w-12 py-2 text-right">
                  <Button small disabled={editing !== null} onClick={() => onEdit(row.task)}>
                    Edit<span className="sr-only"> {row.task.title}</span>
                  </Button>
                </td>
              )}
            </tr>
          ),
        )}
      </tbody>
    </table>
  );
}

function Th({ wide, children }: { wide?: boolean; children: ReactNode }) {
  return <th className={`py-1 pr-3 font-medium ${wide ? "max-sm:hidden" : ""}`}>{children}</th>;
}

function About({ task, titles, applied, notes }: { task: PlannedTask; titles: ReadonlyMap<string, string>; applied: boolean; notes: readonly string[] }) {
  const more = task.description || task.acceptance.length > 0 || task.files.length > 0;
  return (
    <>
      <span className="font-medium break-words">{task.title}</span> <span className="font-mono text-xs text-ink-faint">{task.id}</span>{" "}
      {task.issueKey && <span className="text-xs text-ink-faint">{/^\d+$/.test(task.issueKey) ? `issue ${task.issueKey}` : task.issueKey}</span>}
      {task.labels.length > 0 && (
        <span className="mt-1 flex flex-wrap gap-1">
          {task.labels.map((label) => (
            <Badge key={label}>{label}</Badge>
          ))}
        </span>
      )}
      <span className="mt-1 block text-xs text-ink-soft sm:hidden">
        {!applied && [task.profile ?? "whoever fits", task.effort, ...(task.priority ? [`priority ${task.priority}`] : [])].join(", ")}
        {task.dependencies.length > 0 && (
          <>
            {applied ? "" : "; "}after <After task={task} titles={titles} />
          </>
        )}
      </span>
      {notes.map((note) => (
        <span key={note} className="mt-1 block text-xs text-needs">
          {note}
        </span>
      ))}
      {more && (
        <details className="mt-1 text-ink-soft">
          <summary className="min-h-6 w-fit cursor-pointer text-xs leading-6 hover:text-ink">
            Details<span className="sr-only"> of {task.title}</span>
          </summary>
          <div className="flex flex-col gap-2 pb-1">
            {task.description && <p className="max-w-prose break-words whitespace-pre-wrap">{task.description}</p>}
            {task.acceptance.length > 0 && (
              <ul aria-label="It is done when" className="list-disc pl-5">
                {task.acceptance.map((one) => (
                  <li key={one} className="break-words">
                    {one}
                  </li>
                ))}
              </ul>
            )}
            {task.files.length > 0 && (
              <ul aria-label="Files it will change" className="font-mono text-xs [overflow-wrap:anywhere]">
                {task.files.map((one) => (
                  <li key={one}>{one}</li>
                ))}
              </ul>
            )}
          </div>
        </details>
      )}
    </>
  );
}

function After({ task, titles }: { task: PlannedTask; titles: ReadonlyMap<string, string> }) {
  if (task.dependencies.length === 0) return <span className="text-ink-faint max-sm:hidden">nothing</span>;
  return task.dependencies.map((id, index) => (
    <span key={id} title={titles.get(id)}>
      {index > 0 && ", "}
      <span className="font-mono text-xs">{id}</span>
    </span>
  ));
}

function For({ task }: { task: PlannedTask }) {
  return (
    <>
      {task.profile ?? "whoever fits"}
      <span className="block text-xs text-ink-faint">
        {task.effort}
        {task.priority !== 0 && `, priority ${task.priority}`}
      </span>
    </>
  );
}

function HowFar({ row: { task, session, stands }, project }: { row: Row; project: string }) {
  if (!stands) return null;
  const start = () => attempt(() => api.post("/api/sessions", { projectId: project, issue: task.issueKey ?? task.issue }), "An agent takes it");
  return (
    <>
      <Badge tone={stands.tone}>{stands.word}</Badge>
      {stands.waitsForYou && may("operator") && (
        <Button small className="ml-2" onClick={() => void start()}>
          Start now<span className="sr-only">: {task.title}</span>
        </Button>
      )}
      {session && (
        <span className="mt-1 block text-xs">
          <SessionLink id={session.id}>{session.name}</SessionLink>
        </span>
      )}
      {stands.why && <span className="mt-1 block text-xs break-words text-ink-soft">{spoken(stands.why)}</span>}
    </>
  );
}
