/** One task of a draft, to be written anew. */
import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";

import { api, ApiError } from "../../api/client";
import type { Agents, PlannedTask } from "../../api/types";
import { Button } from "../../ui/button";
import { cx } from "../../ui/cx";
import { FIELD, Labelled } from "../../ui/form";
import { concerns, dependents, faults, lines, listed, type Said } from "./tasks";

interface Props {
  task: Said;
  /** All of the plan. */
  tasks: readonly PlannedTask[];
  project: string;
  onSave: (task: Said) => Promise<void>;
  onCancel: () => void;
  /** Absent: it is not there yet. */
  onRemove?: (() => Promise<void>) | undefined;
}

const EFFORTS = ["small", "medium", "large"] as const;
const TEXT = cx(FIELD, "field-sizing-content max-h-80 resize-y py-2 leading-snug");

export function TaskForm({ task, tasks, project, onSave, onCancel, onRemove }: Props) {
  const [text, setText] = useState({
    title: task.title,
    description: task.description,
    acceptance: task.acceptance.join("\n"),
    labels: task.labels.join(", "),
    files: task.files.join("\n"),
    priority: String(task.priority),
  });
  const [after, setAfter] = useState<readonly string[]>(task.dependencies);
  const [profile, setProfile] = useState(task.profile ?? "");
  const [effort, setEffort] = useState(task.effort);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const id = useId();
  const write = (change: Partial<typeof text>) => setText((before) => ({ ...before, ...change }));

  const attempt = async (action: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await action();
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  const save = () =>
    attempt(() =>
      onSave({
        ...task,
        title: text.title.trim(),
        description: text.description.trim(),
        acceptance: lines(text.acceptance),
        labels: listed(text.labels),
        files: lines(text.files),
        priority: Number(text.priority) || 0,
        dependencies: [...after],
        profile: profile || null,
        effort,
      }),
    );
  const area = (name: "description" | "acceptance" | "files", label: string, hint?: string) => (
    <Labelled id={`${id}-${name}`} label={label} {...(hint ? { hint } : {})}>
      <textarea
        id={`${id}-${name}`}
        value={text[name]}
        onChange={(event) => write({ [name]: event.target.value })}
        {...(hint ? { "aria-describedby": `${id}-${name}-hint` } : {})}
        className={cx(TEXT, name === "files" && "font-mono !text-xs", name === "description" ? "min-h-24" : "min-h-16")}
      />
    </Labelled>
  );
  return (
    <form
      aria-label={`Task ${task.id}`}
      className="flex flex-col gap-4 rounded-lg border border-line-strong bg-raised p-3 sm:p-4"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
      onKeyDown={(event) => {
        if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) void save();
      }}
    >
      <Labelled id={`${id}-title`} label={`Title of ${task.id}`}>
        <input id={`${id}-title`} autoFocus value={text.title} onChange={(event) => write({ title: event.target.value })} className={FIELD} />
      </Labelled>
      {area("description", "Description")}
      <div className="grid gap-4 sm:grid-cols-2">
        {area("acceptance", "It is done when", "One a line.")}
        {area("files", "Files it will change", "One a line; patterns too.")}
      </div>
      <After task={task.id} tasks={tasks} chosen={after} onChange={setAfter} />
      <div className="grid grid-cols-2 gap-4 sm:grid-cols-4">
        <ProfileChoice id={`${id}-profile`} project={project} value={profile} onChange={setProfile} />
        <Labelled id={`${id}-effort`} label="Effort">
          <select id={`${id}-effort`} value={effort} onChange={(event) => setEffort(event.target.value as typeof effort)} className={FIELD}>
            {EFFORTS.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </Labelled>
        <Labelled id={`${id}-priority`} label="Priority">
          <input id={`${id}-priority`} type="number" value={text.priority} onChange={(event) => write({ priority: event.target.value })} className={FIELD} />
        </Labelled>
        <Labelled id={`${id}-labels`} label="Labels">
          <input id={`${id}-labels`} value={text.labels} onChange={(event) => write({ labels: event.target.value })} placeholder="api, docs" autoComplete="off" className={cx(FIELD, "placeholder:text-ink-faint")} />
        </Labelled>
      </div>
      {error ? <Wrong error={error} task={task.id} /> : null}
      <div className="flex flex-wrap justify-end gap-2">
        {onRemove && (
          <Button look="danger" className="mr-auto" disabled={busy || tasks.length === 1} onClick={() => void attempt(onRemove)}>
            Take it out
          </Button>
        )}
        <Button onClick={onCancel}>Cancel</Button>
        <Button type="submit" look="primary" busy={busy}>
          Save
        </Button>
      </div>
    </form>
  );
}

/** What the daemon has against it: of this task first, then of others. */
function Wrong({ error, task }: { error: unknown; task: string }) {
  const message = error instanceof Error ? error.message : String(error);
  const found = faults(message);
  const mine = found.filter((one) => concerns(one, task));
  const rest = found.filter((one) => !mine.includes(one));
  return (
    <div role="alert" className="rounded-md bg-bad-soft px-3 py-2 text-sm text-bad">
      <p className="font-medium">It was not saved.</p>
      <ul className="list-disc pl-5">
        {[...mine, ...rest].map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
      {error instanceof ApiError && found[0] === message && error.remedy ? <p className="text-ink-soft">{error.remedy}</p> : null}
    </div>
  );
}

function After({ task, tasks, chosen, onChange }: { task: string; tasks: readonly PlannedTask[]; chosen: readonly string[]; onChange: (after: string[]) => void }) {
  const later = dependents(tasks, task);
  const others = tasks.filter((one) => one.id !== task && (!later.has(one.id) || chosen.includes(one.id)));
  if (others.length === 0) return null;
  return (
    <fieldset className="flex flex-col gap-1">
      <legend className="mb-1 text-sm font-medium">It comes after</legend>
      <div className="max-h-48 overflow-y-auto rounded-md border border-line bg-surface">
        {others.map((one) => (
          <label key={one.id} className="flex min-h-9 items-center gap-2 px-2.5 hover:bg-raised">
            <input
              type="checkbox"
              checked={chosen.includes(one.id)}
              onChange={(event) => onChange(event.target.checked ? [...chosen, one.id] : chosen.filter((id) => id !== one.id))}
            />
            <span className="truncate">{one.title}</span>
            <span className="ml-auto shrink-0 font-mono text-xs text-ink-faint">{one.id}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

function ProfileChoice({ id, project, value, onChange }: { id: string; project: string; value: string; onChange: (profile: string) => void }) {
  const { data } = useQuery({ queryKey: ["agents"], queryFn: () => api.get<Agents>("/api/agents") });
  const names = (data?.agents ?? []).filter((agent) => agent.project === project).map((agent) => agent.name);
  return (
    <Labelled id={id} label="Profile">
      <select id={id} value={value} onChange={(event) => onChange(event.target.value)} className={FIELD}>
        <option value="">Whoever fits</option>
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
        {value && !names.includes(value) && <option>{value}</option>}
      </select>
    </Labelled>
  );
}
