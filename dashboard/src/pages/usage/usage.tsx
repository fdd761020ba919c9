/** What the fleet did and what it cost. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { Stats, UsageTable } from "../../api/types";
import { useBoard } from "../../live/store";
import { Bars, type Bar } from "../../ui/bars";
import { Empty } from "../../ui/empty";
import { Select } from "../../ui/field";
import { Loading } from "../../ui/loading";
import { dollars, span, tokens } from "../../ui/numbers";
import { Heading, Page, Section } from "../../ui/page";
import { ProblemNote } from "../../ui/problem";
import { Allowances } from "./allowances";
import { byDay, retriesOf } from "./days";

const PERIODS = [7, 30, 90];

export default function Usage() {
  const [days, setDays] = useState(30);
  const [project, setProject] = useState("");
  const projects = useBoard((board) => board.overview)?.projects ?? [];
  const stats = useQuery({ queryKey: ["fleet", "stats", days, project], queryFn: () => api.get<Stats>("/api/stats", { days, project, all: !project }) });
  return (
    <Page>
      <Heading title="Usage" about="What the fleet did, and what it cost.">
        <Select aria-label="Period" value={days} onChange={(event) => setDays(Number(event.target.value))}>
          {PERIODS.map((one) => (
            <option key={one} value={one}>
              {one} days
            </option>
          ))}
        </Select>
        {projects.length > 1 && (
          <Select aria-label="Project" value={project} onChange={(event) => setProject(event.target.value)}>
            <option value="">All projects</option>
            {projects.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name}
              </option>
            ))}
          </Select>
        )}
      </Heading>
      <Allowances project={project} />
      {stats.isPending && <Loading label="Counting" />}
      {stats.error && <ProblemNote error={stats.error} />}
      {stats.data && <Charts stats={stats.data} />}
      <Table project={project} />
    </Page>
  );
}

function Charts({ stats }: { stats: Stats }) {
  const { days } = stats;
  const retries = retriesOf(days);
  const charts: { title: string; bars: Bar[]; format: (value: number) => string }[] = [
    { title: "Cost", bars: byDay(days, [["cost", "bg-accent", (day) => day.usd ?? 0]]), format: dollars },
    {
      title: "Tokens",
      bars: byDay(days, [
        ["output", "bg-review", (day) => day.output],
        ["input", "bg-work", (day) => day.input],
      ]),
      format: tokens,
    },
    { title: "Changes landed", bars: byDay(days, [["landed", "bg-ready", (day) => day.landed]]), format: String },
    { title: "Retries", bars: byDay(days, [["retries", "bg-needs", (day) => Object.values(day.retries).reduce((sum, one) => sum + one, 0)]]), format: String },
  ];
  return (
    <>
      <div className="grid gap-4 md:grid-cols-2">
        {charts.map((chart) => (
          <div key={chart.title} className="rounded-xl border border-line bg-surface p-4 shadow-card">
            <Bars {...chart} />
          </div>
        ))}
      </div>
      <Section title="Flow">
        <dl className="grid grid-cols-2 gap-4 sm:grid-cols-4">
          <Figure name="sessions begun" value={String(days.reduce((sum, day) => sum + day.started, 0))} />
          <Figure name="pull requests opened" value={String(days.reduce((sum, day) => sum + day.opened, 0))} />
          <Figure name="landed" value={String(days.reduce((sum, day) => sum + day.landed, 0))} />
          <Figure name="median time to merge" value={stats.medianToMerge === null ? "–" : span(stats.medianToMerge)} />
        </dl>
        {retries.length > 0 && (
          <p className="mt-3 text-sm text-ink-soft">
            Another try was given for {retries.map(([trigger, count]) => `${trigger} (${count})`).join(", ")}.
          </p>
        )}
      </Section>
    </>
  );
}

function Figure({ name, value }: { name: string; value: string }) {
  return (
    <div className="flex flex-col-reverse">
      <dt className="text-sm text-ink-soft">{name}</dt>
      <dd className="text-xl font-semibold tabular-nums">{value}</dd>
    </div>
  );
}

const BY = ["session", "project", "agent", "model", "day"] as const;

function Table({ project }: { project: string }) {
  const [by, setBy] = useState<(typeof BY)[number]>("session");
  const usage = useQuery({ queryKey: ["fleet", "usage", by, project], queryFn: () => api.get<UsageTable>("/api/usage", { by, project, all: !project }) });
  const rows = [...(usage.data?.rows ?? [])].sort((a, b) => (b.usd ?? 0) - (a.usd ?? 0) || b.input + b.output - a.input - a.output);
  return (
    <Section
      title="Tokens and dollars"
      action={
        <Select aria-label="Added up by" value={by} onChange={(event) => setBy(event.target.value as (typeof BY)[number])}>
          {BY.map((one) => (
            <option key={one} value={one}>
              by {one}
            </option>
          ))}
        </Select>
      }
    >
      {usage.error && <ProblemNote error={usage.error} />}
      {usage.data && rows.length === 0 && (
        <Empty title="Nothing was used yet">
          <p>Agents report what they use; it stands here as soon as one does.</p>
        </Empty>
      )}
      {rows.length > 0 && (
        <div className="overflow-x-auto" tabIndex={0} role="group" aria-label="Tokens and dollars">
          <table className="w-full text-sm tabular-nums">
            <thead className="text-left text-ink-soft">
              <tr>
                <th className="py-1 font-medium">{by}</th>
                {["input", "output", "cache read", "cache write", "dollars"].map((name) => (
                  <th key={name} className="py-1 text-right font-medium">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {[...rows, { key: "in all", ...usage.data!.total }].map((row) => (
                <tr key={row.key} className="border-t border-line last:font-semibold">
                  <th scope="row" className="max-w-72 truncate py-1.5 text-left font-normal">
                    {row.key}
                  </th>
                  {[row.input, row.output, row.cacheRead, row.cacheWrite].map((count, index) => (
                    <td key={index} className="text-right">
                      {tokens(count)}
                    </td>
                  ))}
                  <td className="text-right">{row.usd === null ? "–" : dollars(row.usd)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Section>
  );
}
