/** A change's checks, each with what it printed. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { rerunChecks } from "../../../actions";
import { api, path } from "../../../api/client";
import type { BoardSession, ChangeCheck, PullRequestView } from "../../../api/types";
import { may } from "../../../auth";
import { Badge, type Tone } from "../../../ui/badge";
import { Button } from "../../../ui/button";
import { Empty } from "../../../ui/empty";
import { Loading } from "../../../ui/loading";
import { ProblemNote } from "../../../ui/problem";
import { attempt } from "../../../ui/toast";
import { outward } from "../../board/words";
import { plainText } from "./ansi";

const STATES: Record<ChangeCheck["state"], { word: string; sign: string; tone: Tone }> = {
  queued: { word: "Waits", sign: "○", tone: "plain" },
  running: { word: "Runs", sign: "◔", tone: "work" },
  success: { word: "Passed", sign: "✓", tone: "ready" },
  failure: { word: "Failed", sign: "✕", tone: "bad" },
  flaky: { word: "Passed, flaky", sign: "✓", tone: "needs" },
  cancelled: { word: "Cancelled", sign: "–", tone: "plain" },
  timed_out: { word: "Timed out", sign: "✕", tone: "bad" },
  skipped: { word: "Skipped", sign: "–", tone: "plain" },
};

export function Checks({ session }: { session: BoardSession }) {
  const { id, pr } = session;
  const view = useQuery({ queryKey: ["session", id, "review"], queryFn: () => api.get<PullRequestView>(path`/api/sessions/${id}/review`), enabled: pr !== null });
  if (!pr?.checks.length) {
    return (
      <Empty title="No checks have run">
        <p>{pr ? "The project names no checks, or they have not been started." : "They run when the agent says that it is done."}</p>
      </Empty>
    );
  }
  const summaries = new Map(view.data?.failing.map((one) => [one.name, one.summary]));
  return (
    <section aria-label="Checks" className="flex flex-col gap-2">
      <div className="flex items-center justify-between gap-2">
        <p className="text-sm text-ink-soft">
          At commit <span className="font-mono">{pr.head?.slice(0, 10) ?? "unknown"}</span>
        </p>
        {may("operator") && (pr.state === "open" || pr.state === "draft") && (
          <Button small onClick={() => void attempt(() => rerunChecks(id), "The checks run")}>
            Run again
          </Button>
        )}
      </div>
      <ul className="flex flex-col gap-2">
        {pr.checks.map((check) => (
          <OneCheck key={check.name} id={id} check={check} summary={summaries.get(check.name)} />
        ))}
      </ul>
    </section>
  );
}

function OneCheck({ id, check, summary }: { id: string; check: ChangeCheck; summary: string | undefined }) {
  const [open, setOpen] = useState(false);
  const state = STATES[check.state];
  const url = outward(check.url);
  return (
    <li className="overflow-hidden rounded-lg border border-line bg-surface">
      <div className="flex items-center gap-2 pr-3">
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="flex min-h-10 min-w-0 flex-1 items-center gap-2.5 px-3 text-left hover:bg-raised">
          <span aria-hidden className={`text-xs text-ink-faint transition-transform ${open ? "rotate-90" : ""}`}>
            ▶
          </span>
          <span className="font-mono text-sm">{check.name}</span>
          <Badge tone={check.onBase ? "plain" : state.tone}>
            <span aria-hidden>{state.sign}</span> {state.word}
            {check.onBase && ", without the change too"}
          </Badge>
          {summary && <span className="min-w-0 truncate text-sm text-ink-soft">{summary}</span>}
        </button>
        {url && (
          <a href={url} target="_blank" rel="noopener noreferrer" className="shrink-0 text-sm text-accent hover:underline">
            At the forge
          </a>
        )}
      </div>
      {open && <Log id={id} check={check} />}
    </li>
  );
}

function Log({ id, check }: { id: string; check: ChangeCheck }) {
  const log = useQuery({ queryKey: ["session", id, "check", check.name, check.state], queryFn: () => api.text(path`/api/sessions/${id}/checks/${check.name}/log`) });
  if (log.isPending) return <Loading label="Loading its output" />;
  if (log.isError)
    return (
      <div className="p-3">
        <ProblemNote error={log.error} />
      </div>
    );
  const text = plainText(log.data).trimEnd();
  return (
    <pre tabIndex={0} aria-label={`Output of ${check.name}`} className="max-h-[60vh] overflow-auto border-t border-line bg-raised p-3 font-mono text-xs leading-relaxed break-words whitespace-pre-wrap dark:bg-sunken">
      {text || "It printed nothing"}
    </pre>
  );
}
