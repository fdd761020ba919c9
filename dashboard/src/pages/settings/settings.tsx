/** How things are set up: this browser, agents, rules, what people were told, and who may come in. */
import { useQuery } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { Link } from "wouter";

import { api } from "../../api/client";
import type { Agents, Findings, Notifications, TriedNotifiers } from "../../api/types";
import { may, me, signOut } from "../../auth";
import { askToNotify, stopNotifying, tryNotifying, useNotifying, type Notifying } from "../../live/notify";
import { setTheme, useTheme, type Theme } from "../../theme";
import { Badge, type Tone } from "../../ui/badge";
import { Button } from "../../ui/button";
import { Empty } from "../../ui/empty";
import { Field, Select } from "../../ui/field";
import { Loading } from "../../ui/loading";
import { Heading, Page, Section } from "../../ui/page";
import { ProblemNote } from "../../ui/problem";
import { Age, spoken } from "../../ui/time";
import { sessionPath } from "../board/paths";
import { attempt } from "../../ui/toast";
import { Rules } from "./rules";
import { Tokens } from "./tokens";

export default function Settings() {
  return (
    <Page>
      <Heading title="Settings" about="What is written in agent-orchestrator.yaml is shown here and changed there: ao config." />
      <ThisBrowser />
      <AgentsFound />
      <Rules />
      <Told />
      {may("admin") && <Tokens />}
      <Machine />
    </Page>
  );
}

function ThisBrowser() {
  const theme = useTheme();
  const who = useSyncExternalStore(me.subscribe, me.read);
  return (
    <Section title="This browser">
      <div className="flex flex-wrap items-end gap-x-4 gap-y-3">
        <Field label="Theme">
          <Select value={theme} onChange={(event) => setTheme(event.target.value as Theme)}>
            <option value="system">As the system</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </Select>
        </Field>
        <p className="min-h-9 flex-1 basis-60 content-center text-sm text-ink-soft">
          Signed in as {who?.name ?? who?.kind}
          {who?.role && ` with the role ${who.role}`}; the daemon is version {who?.version}.
        </p>
        <Button onClick={() => void signOut()}>Sign out</Button>
      </div>
      <NotifyHere />
    </Section>
  );
}

const NOTIFIES: Record<Notifying, string> = {
  on: "This browser tells you when something needs you while you look elsewhere.",
  off: "This browser can tell you when something needs you while you look elsewhere.",
  refused: "This browser was told not to show notifications of this page; its own settings allow them again.",
  impossible: "This browser shows no notifications of this page: it needs https, or this machine's own address.",
};

function NotifyHere() {
  const state = useNotifying();
  return (
    <div className="mt-3 flex flex-wrap items-center gap-2">
      <p className="flex-1 basis-60 text-sm text-ink-soft">{NOTIFIES[state]}</p>
      {state === "off" && <Button onClick={() => void askToNotify()}>Notify me</Button>}
      {state === "on" && (
        <>
          <Button onClick={() => void attempt(tryNotifying)}>Show one</Button>
          <Button onClick={stopNotifying}>Stop</Button>
        </>
      )}
    </div>
  );
}

function AgentsFound() {
  const agents = useQuery({ queryKey: ["agents"], queryFn: () => api.get<Agents>("/api/agents") });
  const known = [...(agents.data?.agents ?? [])].sort((a, b) => a.name.localeCompare(b.name));
  const absent = known.filter((agent) => !agent.found);
  return (
    <Section title="Agents" about="Coding agents on the daemon's machine.">
      {agents.isPending && <Loading label="Looking for agents" />}
      {agents.error && <ProblemNote error={agents.error} />}
      <ul className="grid grid-cols-[repeat(auto-fill,minmax(9.5rem,1fr))] gap-x-6 gap-y-2">
        {known
          .filter((agent) => agent.found)
          .map((agent) => (
            <li key={`${agent.project} ${agent.name}`} className="flex min-w-0 items-baseline gap-2" title={agent.project ? `a profile of ${agent.project}, by ${agent.tool}` : undefined}>
              <span aria-hidden className="text-ready">
                ✓
              </span>
              <span className="truncate font-medium">{agent.name}</span>
              <span className="shrink-0 text-sm text-ink-soft" title={agent.path ?? undefined}>
                {agent.version}
              </span>
            </li>
          ))}
      </ul>
      {absent.length > 0 && <p className="mt-3 text-sm text-ink-soft">Not found: {absent.map((agent) => agent.name).join(", ")}.</p>}
    </Section>
  );
}

const LEVEL: Record<string, Tone> = { urgent: "bad", action: "needs", warning: "needs", info: "plain" };

function Told() {
  const told = useQuery({ queryKey: ["fleet", "notifications"], queryFn: () => api.get<Notifications>("/api/notifications", { all: true, limit: 30 }) });
  const tried = useQuery({
    queryKey: ["notifiers"],
    queryFn: () => api.post<TriedNotifiers>("/api/notifications/test?all=1"),
    enabled: false,
    retry: false,
  });
  return (
    <Section
      title="Notifications"
      about="What people were told, newest first."
      action={
        may("operator") && (
          <Button small busy={tried.isFetching} onClick={() => void tried.refetch()}>
            Try the notifiers
          </Button>
        )
      }
    >
      {tried.error && <ProblemNote error={tried.error} />}
      {tried.data?.notifiers.map((one) => (
        <p key={`${one.project} ${one.name}`} className="flex flex-wrap items-baseline gap-x-3 py-1">
          <Badge tone={one.sent ? "ready" : "bad"}>{one.sent ? "sent" : "failed"}</Badge>
          <span className="font-medium">{one.name}</span>
          {one.problem && <span className="text-sm break-words text-ink-soft">{[one.problem, one.remedy].filter(Boolean).join(": ")}</span>}
        </p>
      ))}
      {told.error && <ProblemNote error={told.error} />}
      {told.data?.notifications.length === 0 && <Empty title="Nothing yet" />}
      <ul className="flex max-h-96 flex-col divide-y divide-line overflow-auto" tabIndex={0} aria-label="Notifications">
        {told.data?.notifications.map((one) => (
          <li key={one.id} className="flex flex-wrap items-baseline gap-x-3 py-2">
            <Badge tone={LEVEL[one.level] ?? "plain"}>{one.level}</Badge>
            {one.session ? (
              <Link href={sessionPath(one.session)} className="font-medium hover:underline">
                {one.title}
              </Link>
            ) : (
              <span className="font-medium">{one.title}</span>
            )}
            <Age at={one.at} className="ml-auto text-xs text-ink-faint" />
            <span className="w-full text-sm break-words whitespace-pre-line text-ink-soft">{spoken(one.message)}</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}

const STATE: Record<string, Tone> = { ok: "ready", warning: "needs", failed: "bad" };

function Machine() {
  const found = useQuery({ queryKey: ["doctor"], queryFn: () => api.get<Findings>("/api/doctor"), enabled: false });
  return (
    <Section
      title="This machine"
      about="What ao doctor finds."
      action={
        <Button small busy={found.isFetching} onClick={() => void found.refetch()}>
          Look
        </Button>
      }
    >
      {found.error && <ProblemNote error={found.error} />}
      <ul className="flex flex-col gap-2">
        {found.data?.checks.map((check) => (
          <li key={check.name} className="flex flex-wrap items-baseline gap-x-3">
            <Badge tone={STATE[check.state] ?? "plain"}>{check.state}</Badge>
            <span className="font-medium">{check.name}</span>
            <span className="text-sm text-ink-soft">{check.detail}</span>
            {check.remedy && <span className="w-full pl-2 text-sm">{check.remedy}</span>}
          </li>
        ))}
      </ul>
    </Section>
  );
}
