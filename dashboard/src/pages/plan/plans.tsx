/** Goals that were made into tasks, the newest first. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";

import { api, path } from "../../api/client";
import type { Plan, Plans } from "../../api/types";
import { useBoard } from "../../live/store";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { ProblemNote } from "../../ui/problem";
import { Section } from "../../ui/page";
import { Age } from "../../ui/time";
import { called, stateTone, stateWord, summary } from "./tasks";

const NEWEST = 6;

export function PlanList() {
  const { data, error } = useQuery({ queryKey: ["fleet", "plans"], queryFn: () => api.get<Plans>("/api/plans", { all: true }) });
  const [all, setAll] = useState(false);
  if (error) return <ProblemNote error={error} />;
  if (!data?.plans.length) return null;
  const shown = all ? data.plans : data.plans.slice(0, NEWEST);
  return (
    <Section title="Plans" about="Goals, and the tasks that came of them.">
      <ul className="flex flex-col divide-y divide-line">
        {shown.map((plan) => (
          <PlanRow key={plan.id} plan={plan} />
        ))}
      </ul>
      {shown.length < data.plans.length && (
        <Button small look="quiet" className="mt-2" onClick={() => setAll(true)}>
          Show all {data.plans.length}
        </Button>
      )}
    </Section>
  );
}

function PlanRow({ plan }: { plan: Plan }) {
  const sessions = useBoard((board) => board.sessions);
  const several = useBoard((board) => board.overview?.projects.length ?? 0) > 1;
  return (
    <li className="flex items-baseline gap-3 py-2">
      <span className="w-8 shrink-0 text-right text-ink-faint">{plan.id}</span>
      <span className="min-w-0 flex-1">
        <Link href={path`/plan/${plan.id}`} className="font-medium break-words underline decoration-line underline-offset-4 hover:decoration-accent">
          {called(plan)}
        </Link>
        <span className="block truncate text-sm text-ink-soft">
          {several && `${plan.project} · `}
          {summary(plan, sessions)}
        </span>
      </span>
      <Badge tone={stateTone(plan.state)}>{stateWord(plan.state)}</Badge>
      <Age at={plan.updatedAt} className="w-12 shrink-0 text-right text-xs text-ink-faint max-sm:hidden" />
    </li>
  );
}
