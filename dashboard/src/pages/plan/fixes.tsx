/** Failing tests and lint errors, one agent per cause: what failed before, what fails now, and who is at it. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";

import { api, path } from "../../api/client";
import type { Fix, Fixes, FixGroup } from "../../api/types";
import { may } from "../../auth";
import { useBoard } from "../../live/store";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { FIELD, Form, Labelled } from "../../ui/form";
import { Section } from "../../ui/page";
import { ProblemNote } from "../../ui/problem";
import { SessionLink } from "../../ui/session_link";
import { Age, spoken } from "../../ui/time";
import { attempt } from "../../ui/toast";
import { AgentChoice } from "../board/new_task";
import { statusTone, statusWord } from "../board/words";
import { byTool, course, fixTone, fixWord, matter, outcome } from "./fixing";
import { lines } from "./tasks";

const NEWEST = 5;

export function FixList() {
  const { data, error } = useQuery({ queryKey: ["fleet", "fixes"], queryFn: () => api.get<Fixes>("/api/fixes", { all: true }) });
  const [starting, setStarting] = useState(false);
  const [all, setAll] = useState(false);
  const fixes = data?.fixes ?? [];
  const shown = all ? fixes : fixes.slice(0, NEWEST);
  if (!may("operator") && !error && fixes.length === 0) return null;
  return (
    <Section
      title="Fixes"
      about="Configured checks, other tests and linters are run; one agent per cause fixes what fails; then they are run again."
      action={
        may("operator") && (
          <Button small onClick={() => setStarting(true)}>
            Fix what fails
          </Button>
        )
      }
    >
      {error && <ProblemNote error={error} />}
      {data && fixes.length === 0 && <p className="text-sm text-ink-soft">Nothing was fixed this way yet.</p>}
      <ul className="flex flex-col divide-y divide-line">
        {shown.map((fix) => (
          <FixRow key={fix.id} fix={fix} />
        ))}
      </ul>
      {shown.length < fixes.length && (
        <Button small look="quiet" className="mt-2" onClick={() => setAll(true)}>
          Show all {fixes.length}
        </Button>
      )}
      <Dialog open={starting} onClose={() => setStarting(false)} title="Fix what fails">
        {starting && <FixForm onClose={() => setStarting(false)} />}
      </Dialog>
    </Section>
  );
}

function FixRow({ fix }: { fix: Fix }) {
  const several = useBoard((board) => board.overview?.projects.length ?? 0) > 1;
  const groups = fix.rounds.flatMap((round) => round.groups.map((group) => ({ round: round.number, group })));
  const known = useQueryClient();
  const stop = async () => {
    if (await attempt(() => api.delete(path`/api/fixes/${fix.id}`), `${fix.id} is stopped; its agents' work is saved`)) await known.invalidateQueries({ queryKey: ["fleet", "fixes"] });
  };
  return (
    <li className="flex flex-col gap-1 py-2">
      <div className="flex items-baseline gap-3">
        <span className="w-8 shrink-0 text-right text-ink-faint">{fix.id}</span>
        <span className="min-w-0 flex-1">
          <span className="font-medium tabular-nums">{course(fix)}</span> <span className="text-ink-soft">on {several ? `${fix.project} ${fix.base}` : fix.base}</span>
          <span className="block text-sm break-words text-ink-soft">{[...byTool(fix), fix.ended ? fix.reason : fix.progress].filter(Boolean).join("; ")}</span>
        </span>
        {!fix.ended && may("operator") && (
          <Button small look="quiet" onClick={() => void stop()}>
            Stop<span className="sr-only"> {fix.id}</span>
          </Button>
        )}
        <Badge tone={fixTone(fix.state)}>{fixWord(fix.state)}</Badge>
        <Age at={fix.updatedAt} className="w-12 shrink-0 text-right text-xs text-ink-faint max-sm:hidden" />
      </div>
      {groups.length > 0 && (
        <details open={!fix.ended || undefined} className="pl-11 text-sm">
          <summary className="min-h-6 w-fit cursor-pointer text-xs leading-6 text-ink-soft hover:text-ink">
            {groups.length} {groups.length === 1 ? "cause" : "causes"}
            <span className="sr-only"> of {fix.id}</span>
          </summary>
          <ul className="flex flex-col">
            {groups.map(({ round, group }) => (
              <Cause key={`${round} ${group.number}`} group={group} round={fix.rounds.length > 1 ? round : null} />
            ))}
          </ul>
        </details>
      )}
    </li>
  );
}

function Cause({ group, round }: { group: FixGroup; round: number | null }) {
  const [word, tone] = outcome(group) ?? (group.status ? [statusWord(group.status), statusTone(group.status)] : (["Waits", "plain"] as const));
  return (
    <li className="flex flex-wrap items-baseline gap-x-2 gap-y-0.5 py-1">
      <Badge tone={tone}>{word}</Badge>
      <span className="min-w-0 break-words">
        {group.title} <span className="text-ink-faint">{group.count}×</span>
      </span>
      {group.session && (
        <span className="text-xs">
          <SessionLink id={group.session}>{group.session}</SessionLink>
        </span>
      )}
      {round !== null && <span className="text-xs text-ink-faint">round {round}</span>}
      {matter(group) && <span className="w-full text-xs break-words text-ink-soft">{spoken(matter(group)!)}</span>}
    </li>
  );
}

function FixForm({ onClose }: { onClose: () => void }) {
  const projects = useBoard((board) => board.overview?.projects);
  const known = useQueryClient();
  const [given, setGiven] = useState({ project: "", agent: "", commands: "", rounds: "3", most: "", only: "fix" as "fix" | "review" | "measure" });
  const [key] = useState(() => crypto.randomUUID());
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const id = useId();
  const set = (change: Partial<typeof given>) => setGiven((before) => ({ ...before, ...change }));
  const project = given.project || projects?.[0]?.id || "";
  const begin = async () => {
    setBusy(true);
    setError(null);
    const commands = lines(given.commands);
    const body = {
      projectId: project,
      maxRounds: Number(given.rounds) || 3,
      ...(commands.length ? { commands } : {}),
      ...(Number(given.most) >= 1 ? { maxAgents: Math.floor(Number(given.most)) } : {}),
      ...(given.agent ? { agent: given.agent } : {}),
      ...(given.only === "review" ? { merge: false } : {}),
      ...(given.only === "measure" ? { dryRun: true } : {}),
    };
    try {
      await api.post("/api/fixes", body, key);
      await known.invalidateQueries({ queryKey: ["fleet", "fixes"] });
      onClose();
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return (
    <Form onSubmit={begin}>
      <div className="grid gap-4 sm:grid-cols-2">
        <Labelled id={`${id}-project`} label="Project">
          <select id={`${id}-project`} value={project} onChange={(event) => set({ project: event.target.value, agent: "" })} className={FIELD}>
            {projects?.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name}
              </option>
            ))}
          </select>
        </Labelled>
        <AgentChoice id={`${id}-agent`} project={project} value={given.agent} onChange={(agent) => set({ agent })} />
        <Labelled id={`${id}-rounds`} label="Rounds at most">
          <input id={`${id}-rounds`} type="number" min={1} max={20} value={given.rounds} onChange={(event) => set({ rounds: event.target.value })} className={FIELD} />
        </Labelled>
        <Labelled id={`${id}-most`} label="Agents at once">
          <input id={`${id}-most`} type="number" min={1} value={given.most} onChange={(event) => set({ most: event.target.value })} placeholder="as many as there is room for" className={`${FIELD} placeholder:text-ink-faint`} />
        </Labelled>
      </div>
      <Labelled id={`${id}-only`} label="What is fixed">
        <select id={`${id}-only`} value={given.only} onChange={(event) => set({ only: event.target.value as typeof given.only })} className={FIELD}>
          <option value="fix">lands through the merge queue</option>
          <option value="review">is left for review</option>
          <option value="measure">nothing: only measure and group</option>
        </select>
      </Labelled>
      {may("admin") && (
        <Labelled id={`${id}-commands`} label="Commands" hint="One per line, run beside the configured checks. Empty: the project's other tests and linters are found.">
          <textarea
            id={`${id}-commands`}
            value={given.commands}
            onChange={(event) => set({ commands: event.target.value })}
            aria-describedby={`${id}-commands-hint`}
            className={`${FIELD} field-sizing-content min-h-16 resize-y py-2 font-mono !text-xs`}
          />
        </Labelled>
      )}
      {error ? <ProblemNote error={error} /> : null}
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button type="submit" look="primary" busy={busy}>
          Begin
        </Button>
      </div>
    </Form>
  );
}
