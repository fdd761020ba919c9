/** What a session is made of: workspace, usage, prompt, and the reasons for its status. */
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo, type ReactNode } from "react";

import { api, path } from "../../../api/client";
import type { BoardSession, Prompt, UsageCourse, Why, Work } from "../../../api/types";
import { Button } from "../../../ui/button";
import { Loading } from "../../../ui/loading";
import { withoutCookie } from "../../../ui/loopback";
import { dollars, tokens } from "../../../ui/numbers";
import { ProblemNote } from "../../../ui/problem";
import { Ago, spoken } from "../../../ui/time";
import { attempt } from "../../../ui/toast";
import { outward } from "../../board/words";
import { editorLink } from "./editor";
import { spent } from "./spent";

const UsageChart = lazy(() => import("./usage_chart"));

export function Details({ session }: { session: BoardSession }) {
  return (
    <div className="grid items-start gap-3 lg:grid-cols-2">
      <Workspace session={session} />
      <Facts session={session} />
      <UsageCard session={session} />
      <WhyCard id={session.id} />
      <PromptCard id={session.id} />
    </div>
  );
}

function Card({ title, wide, children }: { title: string; wide?: boolean; children: ReactNode }) {
  return (
    <section aria-label={title} className={`flex min-w-0 flex-col gap-2 rounded-lg border border-line bg-surface p-4 ${wide ? "lg:col-span-2" : ""}`}>
      <h2 className="text-sm font-semibold">{title}</h2>
      {children}
    </section>
  );
}

function Rows({ children }: { children: ReactNode }) {
  return <dl className="grid grid-cols-[auto_1fr] items-baseline gap-x-4 gap-y-1.5 text-sm">{children}</dl>;
}

function Row({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt className="text-ink-faint">{name}</dt>
      <dd className="min-w-0 break-words">{children}</dd>
    </>
  );
}

function Copyable({ text }: { text: string }) {
  return (
    <span className="flex min-w-0 items-center gap-2">
      <code className="min-w-0 font-mono text-xs break-all">{text}</code>
      <Button small aria-label={`Copy ${text}`} onClick={() => void attempt(() => navigator.clipboard.writeText(text), "Copied")}>
        Copy
      </Button>
    </span>
  );
}

function Workspace({ session }: { session: BoardSession }) {
  const { id } = session;
  const work = useQuery({ queryKey: ["session", id, "work"], queryFn: () => api.get<Work>(path`/api/sessions/${id}/work`) });
  if (work.isPending) return <Card title="Workspace">{<Loading label="Looking at its workspace" />}</Card>;
  if (work.isError)
    return (
      <Card title="Workspace">
        <ProblemNote error={work.error} />
      </Card>
    );
  const { path: folder, ports, uncommitted, rescues, ahead, head, pushed, branch, base } = work.data;
  return (
    <Card title="Workspace">
      <Rows>
        <Row name="Folder">{folder ? <Copyable text={folder} /> : <span className="text-ink-soft">Removed; everything is on the branch</span>}</Row>
        {folder && (
          <Row name="Open">
            <span className="flex flex-wrap items-center gap-x-3 gap-y-1">
              <a href={editorLink(folder)} className="text-accent hover:underline">
                In VS Code on this machine
              </a>
              <Copyable text={`ao open ${id}`} />
            </span>
          </Row>
        )}
        <Row name="Branch">
          <span className="font-mono text-xs">{branch}</span>
          {ahead !== null && `, ${ahead} ${ahead === 1 ? "commit" : "commits"} on ${base}`}
        </Row>
        {head && (
          <Row name="Commit">
            <span className="font-mono text-xs">{head.slice(0, 12)}</span>, {pushed ? (pushed === head ? "pushed" : `pushed up to ${pushed.slice(0, 12)}`) : "not pushed"}
          </Row>
        )}
        {uncommitted.length > 0 && (
          <Row name="Uncommitted">
            <Names names={uncommitted} />
          </Row>
        )}
        {rescues.length > 0 && (
          <Row name="Saved">
            <Names names={rescues} />
          </Row>
        )}
        {ports.length > 0 && (
          <Row name="Ports">
            <span className="flex flex-wrap gap-x-3">
              {ports.map((port) => (
                <a key={port} href={withoutCookie(`http://127.0.0.1:${port}`)} target="_blank" rel="noopener noreferrer" className="font-mono text-xs leading-6 text-accent hover:underline">
                  {port}
                </a>
              ))}
            </span>
          </Row>
        )}
      </Rows>
    </Card>
  );
}

function Names({ names }: { names: readonly string[] }) {
  return (
    <ul className="max-h-40 overflow-auto">
      {names.map((name) => (
        <li key={name} className="font-mono text-xs leading-5 break-all">
          {name}
        </li>
      ))}
    </ul>
  );
}

function Facts({ session }: { session: BoardSession }) {
  const attempts = Object.entries(session.attempts).filter(([, count]) => count > 0);
  const issue = outward(session.issue);
  return (
    <Card title="Session">
      <Rows>
        <Row name="Agent">
          {session.agent}
          {session.profile && session.profile !== session.agent && `, as ${session.profile}`}
        </Row>
        <Row name="Runs in">
          {session.runtime}
          {session.node && ` on ${session.node}`}
          {session.pid !== null && <span className="text-ink-soft">, process {session.pid}</span>}
          {session.exitCode !== null && <span className="text-ink-soft">, ended with {session.exitCode}</span>}
        </Row>
        {session.issue && (
          <Row name="Issue">
            {issue ? (
              <a href={issue} target="_blank" rel="noopener noreferrer" className="text-accent hover:underline">
                {issue}
              </a>
            ) : (
              session.issue
            )}
          </Row>
        )}
        {session.stack && <Row name="Stands on">{session.stack}</Row>}
        {session.waitingFor && <Row name="Waits for">{session.waitingFor}</Row>}
        {attempts.length > 0 && <Row name="Attempts">{attempts.map(([trigger, count]) => `${trigger} ${count}`).join(", ")}</Row>}
        {session.notes.length > 0 && <Row name="Notes">{session.notes.join("; ")}</Row>}
        <Row name="Begun">
          <Ago at={session.createdAt} />
        </Row>
      </Rows>
    </Card>
  );
}

function UsageCard({ session }: { session: BoardSession }) {
  const { id, usage } = session;
  const course = useQuery({ queryKey: ["session", id, "usage"], queryFn: () => api.get<UsageCourse>(path`/api/sessions/${id}/usage`) });
  const data = useMemo(() => spent(course.data?.points ?? []), [course.data]);
  return (
    <Card title="Usage">
      <p className="text-sm text-ink-soft">
        {tokens(usage.input)} tokens in, {tokens(usage.output)} out
        {usage.usd !== null && `, ${dollars(usage.usd)}`}
      </p>
      {data.at.length > 1 && (
        <Suspense fallback={<div className="h-[180px]" />}>
          <UsageChart data={data} />
        </Suspense>
      )}
      {course.data && data.at.length <= 1 && <p className="text-sm text-ink-faint">A chart comes with its second turn.</p>}
    </Card>
  );
}

/** Of what the daemon does for it, only what is still to come is worth a line. */
const FINISHED = /^Effect \S+: (?:done|dropped)\b/;

function WhyCard({ id }: { id: string }) {
  const why = useQuery({ queryKey: ["session", id, "why"], queryFn: () => api.get<Why>(path`/api/sessions/${id}/why`) });
  return (
    <Card title="Why it stands so">
      {why.isError && <ProblemNote error={why.error} />}
      <ul className="flex flex-col gap-1 text-sm text-ink-soft">
        {why.data?.lines.filter((line) => !FINISHED.test(line)).map((line, index) => (
          <li key={index} className="break-words whitespace-pre-wrap">
            {spoken(line)}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function PromptCard({ id }: { id: string }) {
  const prompt = useQuery({ queryKey: ["session", id, "prompt"], queryFn: () => api.get<Prompt>(path`/api/sessions/${id}/prompt`) });
  return (
    <Card title="Prompt" wide>
      {prompt.isError && <ProblemNote error={prompt.error} />}
      {prompt.data && (
        <>
          <h3 className="text-xs font-medium text-ink-faint">Its task</h3>
          <Words text={prompt.data.prompt} />
          <h3 className="text-xs font-medium text-ink-faint">How it is to work here</h3>
          <Words text={prompt.data.system} />
        </>
      )}
    </Card>
  );
}

function Words({ text }: { text: string }) {
  return (
    <pre tabIndex={0} className="max-h-72 overflow-auto rounded-md bg-raised p-3 font-mono text-xs leading-relaxed break-words whitespace-pre-wrap">
      {text || "Nothing"}
    </pre>
  );
}
