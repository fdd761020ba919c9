/** A change's checks, each with what it printed. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { rerunChecks } from "../../../actions";
import { api, path } from "../../../api/client";
import type { BoardSession, ChangeCheck, FailingCheck, PullRequestView } from "../../../api/types";
import { may } from "../../../auth";
import { Badge, type Tone } from "../../../ui/badge";
import { Button } from "../../../ui/button";
import { Empty } from "../../../ui/empty";
import { Loading } from "../../../ui/loading";
import { ProblemNote } from "../../../ui/problem";
import { attempt } from "../../../ui/toast";
import { outward, testCounts } from "../../board/words";
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
  not_set_up: { word: "Environment not set up", sign: "!", tone: "needs" },
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
  const explained = new Map(view.data?.failing.map((one) => [one.name, one]));
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
          <OneCheck key={check.name} session={session} check={check} explained={explained.get(check.name)} />
        ))}
      </ul>
    </section>
  );
}

function OneCheck({ session, check, explained }: { session: BoardSession; check: ChangeCheck; explained: FailingCheck | undefined }) {
  const [open, setOpen] = useState(false);
  const state = STATES[check.state];
  const url = outward(check.url);
  const counts = testCounts(check, session.base);
  return (
    <li className="overflow-hidden rounded-lg border border-line bg-surface">
      <div className="flex items-center gap-2 pr-3">
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="flex min-h-10 min-w-0 flex-1 flex-wrap items-center gap-x-2.5 px-3 py-1 text-left hover:bg-raised">
          <span aria-hidden className={`text-xs text-ink-faint transition-transform ${open ? "rotate-90" : ""}`}>
            ▶
          </span>
          <span className="font-mono text-sm">{check.name}</span>
          <Badge tone={check.onBase ? "plain" : state.tone}>
            <span aria-hidden>{state.sign}</span> {state.word}
            {check.onBase && `, as on ${session.base}`}
          </Badge>
          {counts && <span className="text-sm text-ink-soft">{counts}</span>}
        </button>
        {url && (
          <a href={url} target="_blank" rel="noopener noreferrer" className="shrink-0 text-sm text-accent hover:underline">
            At the forge
          </a>
        )}
      </div>
      {explained && <Explanation session={session} check={explained} />}
      {open && <Log id={session.id} check={check} />}
    </li>
  );
}

/** How many failing tests of each kind are listed. */
const SHOWN = 20;

/** What fails, what is missing, the relevant output, and the command that runs it by hand. */
function Explanation({ session, check }: { session: BoardSession; check: FailingCheck }) {
  const { base, id } = session;
  const owned = check.ownedFailures;
  return (
    <div className="flex flex-col gap-2 border-t border-line px-3 py-2 text-sm">
      {check.state === "not_set_up" && <p>{[check.reason, check.remedy].filter(Boolean).join(". ")}</p>}
      <Tests title="New failures" names={check.newFailures.map((one) => (one.message ? `${one.name}: ${one.message}` : one.name))} />
      <Tests title={`Failures on ${base} to fix`} names={owned} />
      <Tests title={`Also failing on ${base}`} names={check.knownFailures.filter((name) => !owned.includes(name))} />
      <Tests title={`Pass on ${base}, gone here`} names={check.vanished} />
      <Tests title={`Pass on ${base}, skipped here`} names={check.newlySkipped} />
      {check.fewer > 0 && (
        <p>
          {check.fewer} fewer {check.fewer === 1 ? "test" : "tests"} than on {base}
        </p>
      )}
      {check.summary && (
        <pre tabIndex={0} aria-label={`Summary of ${check.name}`} className="max-h-80 overflow-auto rounded bg-raised p-2 font-mono text-xs leading-relaxed break-words whitespace-pre-wrap dark:bg-sunken">
          {check.summary}
        </pre>
      )}
      {check.command && (
        <p className="text-xs text-ink-soft">
          Run it by hand: <code className="font-mono">ao sh {id}</code>, then <code className="font-mono break-all">{check.command}</code>
        </p>
      )}
    </div>
  );
}

function Tests({ title, names }: { title: string; names: readonly string[] }) {
  if (!names.length) return null;
  return (
    <section>
      <h3 className="text-xs font-medium text-ink-soft">
        {title} ({names.length})
      </h3>
      <ul className="font-mono text-xs leading-relaxed break-words">
        {names.slice(0, SHOWN).map((name) => (
          <li key={name}>{name}</li>
        ))}
        {names.length > SHOWN && <li>and {names.length - SHOWN} more</li>}
      </ul>
    </section>
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
