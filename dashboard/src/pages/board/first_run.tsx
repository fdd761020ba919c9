/** An empty board that helps: a repository, the demo, what this machine lacks; then a first task. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { api } from "../../api/client";
import type { AddedProject, Findings, OverviewProject } from "../../api/types";
import { may } from "../../auth";
import { Badge, type Tone } from "../../ui/badge";
import { Button } from "../../ui/button";
import { ProblemNote } from "../../ui/problem";
import { toast } from "../../ui/toast";
import { ProofDialog } from "../projects/proof";
import { TaskForm } from "./new_task";

export function FirstRun({ projects }: { projects: readonly OverviewProject[] }) {
  const [added, setAdded] = useState<AddedProject | null>(null);
  return (
    <div className="mx-auto flex w-full max-w-3xl flex-col gap-5 py-4 md:py-10">
      <header className="flex flex-col gap-1 px-1">
        <h2 className="text-xl font-semibold">{projects.length ? "Give an agent its first task" : "Add your first repository"}</h2>
        <p className="text-pretty text-ink-soft">
          {projects.length
            ? "It works on a branch and in a folder of its own. Its questions, its checks and its change come to this board."
            : "Each agent works in a folder and on a branch of its own; your checkout stays as it is."}
        </p>
      </header>
      {projects.length ? (
        <FirstTask projects={projects} />
      ) : (
        <div className="grid gap-5 md:grid-cols-[3fr_2fr]">
          <AddRepository onAdded={setAdded} />
          <Section title="Or look around first">
            <p className="grow text-ink-soft">The demo shows five scripted agents at work, in a home of its own. It needs no key, no model and no network.</p>
            <Shell command="ao start --demo" />
          </Section>
        </div>
      )}
      <Missing />
      {added?.proposal && <ProofDialog project={added} proposal={added.proposal} onClose={() => setAdded(null)} />}
    </div>
  );
}

function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section aria-label={title} className="flex flex-col gap-3 rounded-xl border border-line bg-surface p-4 shadow-card md:p-5">
      <h3 className="font-semibold">{title}</h3>
      {children}
    </section>
  );
}

/** A command to be typed into a terminal, with a button that copies it. */
function Shell({ command }: { command: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(command);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <div className="flex items-center gap-2 rounded-md border border-line bg-raised py-1 pr-1 pl-3">
      <code className="min-w-0 grow overflow-x-auto font-mono text-sm whitespace-nowrap">
        <span aria-hidden className="text-ink-faint select-none">
          ${" "}
        </span>
        {command}
      </code>
      <Button small look="quiet" onClick={() => void copy().catch(toast.failed)} aria-label={`Copy ${command}`}>
        <span role="status">{copied ? "Copied" : "Copy"}</span>
      </Button>
    </div>
  );
}

function AddRepository({ onAdded }: { onAdded: (project: AddedProject) => void }) {
  const client = useQueryClient();
  const [where, setWhere] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const submit = async () => {
    const text = where.trim();
    if (!text) return;
    setBusy(true);
    setError(null);
    try {
      const made = await api.post<AddedProject>("/api/projects", { ...placed(text), init: true });
      toast.done(`${made.name} was added`);
      onAdded(made);
      await client.invalidateQueries();
    } catch (failed) {
      setError(failed);
    }
    setBusy(false);
  };
  return (
    <Section title="A repository of yours">
      {may("admin") && (
        <form
          className="flex flex-col gap-2"
          onSubmit={(event) => {
            event.preventDefault();
            void submit();
          }}
        >
          <label htmlFor="repository" className="text-sm text-ink-soft">
            Its folder on this machine, or an address to clone
          </label>
          <div className="flex gap-2">
            <input
              id="repository"
              value={where}
              onChange={(event) => setWhere(event.target.value)}
              placeholder="~/code/my-app"
              spellCheck={false}
              autoCapitalize="off"
              className="min-h-9 min-w-0 grow rounded-md border border-line-strong bg-surface px-2.5 font-mono text-sm placeholder:text-ink-faint pointer-coarse:text-[16px]"
            />
            <Button type="submit" look="primary" busy={busy} disabled={!where.trim()}>
              Add
            </Button>
          </div>
          {error ? <ProblemNote error={error} /> : null}
        </form>
      )}
      <p className="text-sm text-ink-soft">{may("admin") ? "Or in a terminal:" : "In a terminal:"}</p>
      <Shell command="ao start PATH" />
    </Section>
  );
}

/** A folder, or an address that Git can clone. */
export function placed(text: string): { path: string } | { url: string } {
  return /^(?:[a-z][a-z+]*:\/\/|[\w.-]+@[\w.-]+:)/i.test(text) ? { url: text } : { path: text };
}

function FirstTask({ projects }: { projects: readonly OverviewProject[] }) {
  return (
    <Section title={projects.length === 1 ? `A task for ${projects[0]!.name}` : "A task"}>
      {may("operator") && <TaskForm onDone={() => undefined} />}
      <p className="text-sm text-ink-soft">{may("operator") ? "Or in a terminal, in the repository:" : "In a terminal, in the repository:"}</p>
      <Shell command={'ao new "Fix the login"'} />
    </Section>
  );
}

/** What a look at this machine found. */
function Missing() {
  const { data } = useQuery({ queryKey: ["doctor"], queryFn: () => api.get<Findings>("/api/doctor") });
  if (!data) return null;
  const { wanting, here, absent } = machine(data);
  return (
    <Section title="This machine">
      <ul className="flex flex-col divide-y divide-line">
        {wanting.map((check) => (
          <Finding key={check.name} tone={check.state === "failed" ? "bad" : "needs"} word={check.state === "failed" ? "Missing" : "Look"} name={check.name} detail={check.detail} remedy={check.remedy} />
        ))}
        {here.length ? (
          <Finding tone="ready" word="Here" name="Agents" detail={here.join(", ")} remedy={null} />
        ) : (
          <Finding tone="needs" word="Look" name="No coding agent was found" detail="" remedy={`Install one that you have an account for: ${absent.join(", ")}. Until then the demo agent works without any.`} />
        )}
        {!wanting.length && <Finding tone="ready" word="Here" name="Everything else that is needed" detail="" remedy={null} />}
      </ul>
    </Section>
  );
}

/** What is wanting, and which agents are here; one that is not installed is no fault. */
export function machine({ checks }: Findings): { wanting: Findings["checks"]; here: string[]; absent: string[] } {
  const agent = (name: string) => /^agent (.+)$/.exec(name)?.[1];
  const named = (some: Findings["checks"]) => some.map((check) => agent(check.name)).filter((name): name is string => !!name && name !== "demo");
  return {
    wanting: checks.filter((check) => check.state !== "ok" && !(agent(check.name) && check.detail === "not found")),
    here: named(checks.filter((check) => check.state === "ok")),
    absent: named(checks.filter((check) => check.detail === "not found")),
  };
}

function Finding({ tone, word, name, detail, remedy }: { tone: Tone; word: string; name: string; detail: string; remedy: string | null }) {
  return (
    <li className="grid grid-cols-[4rem_1fr] items-baseline gap-y-0.5 py-2 first:pt-0 last:pb-0">
      <span>
        <Badge tone={tone}>{word}</Badge>
      </span>
      <p className="min-w-0 break-words">
        <span className="font-medium">{name}</span> <span className="text-ink-soft">{detail}</span>
      </p>
      {remedy && <p className="col-start-2 text-sm break-words text-ink-soft">{remedy}</p>}
    </li>
  );
}
