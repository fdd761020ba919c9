/** What happens by itself, and what each rule would do now for a session. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { api, path } from "../../api/client";
import type { Rule, Rules as All, TestedRule, TestedRules } from "../../api/types";
import { may } from "../../auth";
import { useBoard } from "../../live/store";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { Empty } from "../../ui/empty";
import { Field, Select } from "../../ui/field";
import { Section } from "../../ui/page";
import { ProblemNote } from "../../ui/problem";

export function Rules() {
  const projects = useBoard((board) => board.overview)?.projects ?? [];
  const [chosen, setChosen] = useState<string | null>(null);
  const project = chosen ?? projects[0]?.id ?? null;
  const [trying, setTrying] = useState<Rule | null>(null);
  const rules = useQuery({
    queryKey: ["rules", project],
    queryFn: () => api.get<All>("/api/reactions", { project }),
    enabled: project !== null,
    staleTime: 0,
  });
  return (
    <Section
      title="Reactions"
      about="What happens by itself."
      action={
        projects.length > 1 && (
          <Select aria-label="Project" value={project ?? ""} onChange={(event) => setChosen(event.target.value)}>
            {projects.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name}
              </option>
            ))}
          </Select>
        )
      }
    >
      {rules.error && <ProblemNote error={rules.error} />}
      {project === null && <Empty title="No project yet" />}
      <ul className="flex flex-col divide-y divide-line">
        {rules.data?.rules.map((rule) => (
          <li key={rule.name} className="grid min-h-10 grid-cols-[minmax(0,1fr)_auto] items-center gap-x-3 gap-y-1 py-1.5 sm:grid-cols-[11rem_minmax(0,1fr)_auto]">
            <span className="font-medium break-words">{rule.name}</span>
            <span className="flex flex-wrap items-center gap-x-3 gap-y-1 text-sm text-ink-soft max-sm:col-span-2 max-sm:row-start-2">
              <Badge tone={rule.auto ? "work" : "plain"}>{rule.auto ? rule.action : `${rule.action}, on your word`}</Badge>
              {terms(rule)}
              {rule.source !== "default" && <Badge>{rule.source}</Badge>}
            </span>
            {may("operator") && (
              <Button small look="quiet" onClick={() => setTrying(rule)}>
                Try
              </Button>
            )}
          </li>
        ))}
      </ul>
      {trying && project && <TryRule rule={trying} project={project} onClose={() => setTrying(null)} />}
    </Section>
  );
}

/** How often, how soon, and when a person is called. */
export function terms(rule: Pick<Rule, "retries" | "escalateAfter" | "threshold" | "delay" | "condition">): string {
  const parts = [
    rule.retries !== null && `${rule.retries} ${rule.retries === 1 ? "retry" : "retries"}`,
    rule.escalateAfter !== null && `calls you after ${typeof rule.escalateAfter === "number" ? `${rule.escalateAfter} attempts` : rule.escalateAfter}`,
    rule.threshold !== null && `after ${duration(rule.threshold)}`,
    rule.delay !== null && rule.delay > 0 && `waits ${duration(rule.delay)}`,
    rule.condition && `if ${rule.condition}`,
  ];
  return parts.filter(Boolean).join(", ");
}

function duration(seconds: number): string {
  if (seconds % 3600 === 0) return `${seconds / 3600} h`;
  return seconds % 60 === 0 ? `${seconds / 60} min` : `${seconds} s`;
}

function TryRule({ rule, project, onClose }: { rule: Rule; project: string; onClose: () => void }) {
  const sessions = useBoard((board) => board.sessions);
  const mine = [...sessions.values()].filter((session) => session.project === project).reverse();
  const [session, setSession] = useState(mine[0]?.id ?? "");
  const tested = useQuery({
    queryKey: ["try", rule.trigger, session],
    queryFn: () => api.post<TestedRules>(path`/api/sessions/${session}/reactions/test`, { trigger: rule.trigger }),
    enabled: session !== "",
    staleTime: 0,
  });
  return (
    <Dialog open onClose={onClose} title={`What ${rule.trigger} would do`} wide>
      {mine.length === 0 ? (
        <Empty title="There is no session to try it on" />
      ) : (
        <Field label="For the session">
          <Select value={session} onChange={(event) => setSession(event.target.value)}>
            {mine.map((one) => (
              <option key={one.id} value={one.id}>
                {one.title || one.id}
              </option>
            ))}
          </Select>
        </Field>
      )}
      {tested.error && <ProblemNote error={tested.error} />}
      {tested.data?.rules.map((one) => (
        <Outcome key={one.rule} one={one} />
      ))}
      <p className="text-sm text-ink-soft">Nothing of this is done.</p>
    </Dialog>
  );
}

function Outcome({ one }: { one: TestedRule }) {
  return (
    <section aria-label={one.rule} className="flex flex-col gap-2 rounded-lg border border-line p-3">
      <p>
        <span className="font-medium">{one.rule}</span>: {one.applies ? one.action : "nothing"}
        {one.applies && ` to ${one.to}`}
        {one.offered && ", offered to a person"}
        {one.exhausted && ", but its retries are used up"}
        {one.after > 0 && `, after ${duration(Math.round(one.after))}`}
      </p>
      {one.sample.length > 0 && <p className="text-sm text-needs">made-up values stand in for {one.sample.join(", ")}: it has not happened yet</p>}
      {one.condition && <p className="text-sm text-ink-soft">its condition: {one.condition}</p>}
      {one.problem && <p className="text-sm text-bad">{one.problem}</p>}
      {one.text && <pre className="max-h-64 overflow-auto rounded-md bg-sunken p-3 font-mono text-xs whitespace-pre-wrap">{one.text}</pre>}
    </section>
  );
}
