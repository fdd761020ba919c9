/** A task for an agent: what is to be done, where, by whom, after what. */
import { useQuery } from "@tanstack/react-query";
import { useId, useMemo, useState } from "react";

import { api } from "../../api/client";
import type { Agent, Agents, BoardSession, Issues, NewSession, Session } from "../../api/types";
import { useBoard } from "../../live/store";
import { Button } from "../../ui/button";
import { cx } from "../../ui/cx";
import { Dialog } from "../../ui/dialog";
import { FIELD, Form, Labelled } from "../../ui/form";
import { ProblemNote } from "../../ui/problem";
import { toast } from "../../ui/toast";

export interface Wanted {
  project: string;
  task: string;
  agent: string;
  issue: string;
  after: readonly string[];
  stack: boolean;
}

export const NOTHING: Wanted = { project: "", task: "", agent: "", issue: "", after: [], stack: false };

/** The request for what is wanted: a first line and more is a title and its prompt; what was left open is not said. */
export function asRequest(wanted: Wanted): NewSession {
  const task = wanted.task.trim();
  return {
    projectId: wanted.project,
    ...(task ? { prompt: task } : {}),
    ...(wanted.agent ? { agent: wanted.agent } : {}),
    ...(wanted.issue.trim() ? { issue: wanted.issue.trim() } : {}),
    ...(wanted.after.length ? { after: [...wanted.after] } : {}),
    ...(wanted.stack && wanted.after.length === 1 ? { stack: true } : {}),
  };
}

/** What is missing before it can be asked for, or null. */
export function lacks(wanted: Wanted): string | null {
  if (!wanted.project) return "Choose a project";
  return wanted.task.trim() || wanted.issue.trim() ? null : "Say what is to be done, or name an issue";
}

interface Props {
  open: boolean;
  onClose: () => void;
  /** What is known already, for example an issue of the backlog. */
  initial?: Partial<Wanted>;
}

export function NewTask({ open, onClose, initial }: Props) {
  return (
    <Dialog open={open} onClose={onClose} title="New task">
      {open && <TaskForm initial={initial} onDone={onClose} onCancel={onClose} />}
    </Dialog>
  );
}

export function TaskForm({ initial, onDone, onCancel }: { initial?: Partial<Wanted> | undefined; onDone: () => void; onCancel?: () => void }) {
  const sessions = useBoard((board) => board.sessions);
  const projects = useBoard((board) => board.overview?.projects);
  const [given, setGiven] = useState<Wanted>({ ...NOTHING, ...initial });
  const [key] = useState(() => crypto.randomUUID());
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const id = useId();
  const set = (change: Partial<Wanted>) => setGiven((before) => ({ ...before, ...change }));
  const wanted = { ...given, project: given.project || projects?.[0]?.id || "" };
  const open = useMemo(() => [...sessions.values()].filter((one) => one.project === wanted.project && one.column !== "Done"), [sessions, wanted.project]);
  const missing = lacks(wanted);

  const submit = async () => {
    if (missing) return setError(missing);
    setBusy(true);
    setError(null);
    try {
      const made = await api.post<Session>("/api/sessions", asRequest(wanted), key);
      toast.done(`${made.id} begins`, made.title);
      onDone();
    } catch (failed) {
      setError(failed);
    }
    setBusy(false);
  };
  return (
    <Form onSubmit={submit}>
      <Labelled id={`${id}-task`} label="What is to be done" hint="The first line becomes its title.">
        <textarea
          id={`${id}-task`}
          autoFocus
          rows={5}
          value={wanted.task}
          onChange={(event) => set({ task: event.target.value })}
          aria-describedby={`${id}-task-hint`}
          className={cx(FIELD, "field-sizing-content max-h-[40vh] min-h-28 resize-y py-2 leading-snug")}
        />
      </Labelled>
      <div className="grid gap-4 sm:grid-cols-2">
        <Labelled id={`${id}-project`} label="Project">
          <select id={`${id}-project`} value={wanted.project} onChange={(event) => set({ project: event.target.value, after: [], issue: "", agent: "" })} className={FIELD}>
            {projects?.map((project) => (
              <option key={project.id} value={project.id}>
                {project.name}
              </option>
            ))}
          </select>
        </Labelled>
        <AgentChoice id={`${id}-agent`} project={wanted.project} value={wanted.agent} onChange={(agent) => set({ agent })} />
      </div>
      <IssueField id={`${id}-issue`} project={wanted.project} value={wanted.issue} onChange={(issue) => set({ issue })} />
      {open.length > 0 && <After open={open} wanted={wanted} set={set} />}
      {error ? <ProblemNote error={error} /> : null}
      <div className="flex justify-end gap-2">
        {onCancel && <Button onClick={onCancel}>Cancel</Button>}
        <Button type="submit" look="primary" busy={busy}>
          Start
        </Button>
      </div>
    </Form>
  );
}

/** Whom a task of this project can be given to: its profiles first, then the agents that are on this machine. */
export function usable(agents: readonly Agent[], project: string): string[] {
  const fit = agents.filter((agent) => agent.found && (agent.project === null || agent.project === project));
  return [...new Set([...fit.filter((agent) => agent.project), ...fit].map((agent) => agent.name))];
}

export function AgentChoice({ id, label = "Agent", project, value, onChange }: { id: string; label?: string; project: string; value: string; onChange: (agent: string) => void }) {
  const { data } = useQuery({ queryKey: ["agents"], queryFn: () => api.get<Agents>("/api/agents") });
  const names = usable(data?.agents ?? [], project);
  return (
    <Labelled id={id} label={label}>
      <select id={id} value={value} onChange={(event) => onChange(event.target.value)} className={FIELD}>
        <option value="">As the project says</option>
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
        {value && !names.includes(value) && <option>{value}</option>}
      </select>
    </Labelled>
  );
}

function IssueField({ id, project, value, onChange }: { id: string; project: string; value: string; onChange: (issue: string) => void }) {
  const { data } = useQuery({
    queryKey: ["fleet", "issues", project],
    queryFn: () => api.get<Issues>("/api/issues", { project, state: "open" }),
    enabled: project !== "",
    retry: false,
  });
  return (
    <Labelled id={id} label="Issue" hint="A number, or its address. An issue alone is a task too.">
      <input id={id} list={`${id}-open`} value={value} onChange={(event) => onChange(event.target.value)} aria-describedby={`${id}-hint`} autoComplete="off" className={FIELD} />
      <datalist id={`${id}-open`}>
        {data?.issues
          .filter((issue) => issue.state === "open")
          .map((issue) => (
            <option key={issue.id} value={issue.id}>
              {issue.title}
            </option>
          ))}
      </datalist>
    </Labelled>
  );
}

function After({ open, wanted, set }: { open: readonly BoardSession[]; wanted: Wanted; set: (change: Partial<Wanted>) => void }) {
  return (
    <details open={wanted.after.length > 0 || undefined}>
      <summary className="min-h-6 w-fit cursor-pointer text-sm font-medium">Wait for other sessions{wanted.after.length > 0 && ` (${wanted.after.length})`}</summary>
      <fieldset className="mt-2 max-h-40 overflow-y-auto rounded-md border border-line">
        <legend className="sr-only">Sessions that must be done before</legend>
        {open.map((session) => (
          <label key={session.id} className="flex min-h-9 items-center gap-2 px-2.5 hover:bg-raised">
            <input
              type="checkbox"
              checked={wanted.after.includes(session.id)}
              onChange={(event) => set({ after: event.target.checked ? [...wanted.after, session.id] : wanted.after.filter((one) => one !== session.id) })}
            />
            <span className="truncate">{session.title || session.name}</span>
            <span className="ml-auto shrink-0 font-mono text-xs text-ink-faint">{session.name}</span>
          </label>
        ))}
      </fieldset>
      {wanted.after.length === 1 && (
        <label className="mt-2 flex min-h-6 items-center gap-2 text-sm">
          <input type="checkbox" checked={wanted.stack} onChange={(event) => set({ stack: event.target.checked })} />
          Start now, on its branch, and follow it when it lands
        </label>
      )}
    </details>
  );
}
