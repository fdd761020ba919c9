/** The repositories that are worked in. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";

import { api, path } from "../../api/client";
import type { AddedProject, Project, Projects as All, Trust } from "../../api/types";
import { may } from "../../auth";
import { useBoard } from "../../live/store";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { Empty } from "../../ui/empty";
import { Field, Input } from "../../ui/field";
import { Loading } from "../../ui/loading";
import { Heading, Page } from "../../ui/page";
import { ProblemNote } from "../../ui/problem";
import { attempt } from "../../ui/toast";
import { ProofDialog } from "./proof";

export default function Projects() {
  const projects = useQuery({ queryKey: ["fleet", "projects"], queryFn: () => api.get<All>("/api/projects") });
  const [adding, setAdding] = useState(false);
  const [added, setAdded] = useState<AddedProject | null>(null);
  return (
    <Page>
      <Heading title="Projects" about="The repositories that agents work in.">
        {may("admin") && (
          <Button look="primary" onClick={() => setAdding(true)}>
            Add a repository
          </Button>
        )}
      </Heading>
      {projects.isPending && <Loading label="Loading" />}
      {projects.error && <ProblemNote error={projects.error} />}
      {projects.data?.projects.length === 0 && (
        <Empty title="No repository yet">
          <p>
            <code className="font-mono">ao start PATH</code> adds one, too.
          </p>
        </Empty>
      )}
      <ul className="grid gap-4 md:grid-cols-2">
        {projects.data?.projects.map((project) => (
          <li key={project.id}>
            <ProjectCard project={project} />
          </li>
        ))}
      </ul>
      {adding && (
        <AddProject
          onClose={() => setAdding(false)}
          onAdded={(project) => {
            setAdding(false);
            setAdded(project.proposal ? project : null);
          }}
        />
      )}
      {added && <ProofDialog project={added} proposal={added.proposal} onClose={() => setAdded(null)} />}
    </Page>
  );
}

function ProjectCard({ project }: { project: Project }) {
  const overview = useBoard((board) => board.overview)?.projects.find((one) => one.id === project.id);
  const sessions = useBoard((board) => board.sessions);
  const count = [...sessions.values()].filter((session) => session.project === project.id).length;
  const [asked, setAsked] = useState<"trust" | "forget" | "prove" | null>(null);
  const known = useQueryClient();
  const forget = async () => {
    if (await attempt(() => api.delete(path`/api/projects/${project.id}`), `${project.name} is forgotten; its repository stays as it is`))
      await known.invalidateQueries({ queryKey: ["fleet", "projects"] });
  };
  return (
    <article aria-label={project.name} className="flex h-full flex-col gap-3 rounded-xl border border-line bg-surface p-4 shadow-card">
      <div className="flex flex-wrap items-center gap-2">
        <h2 className="font-semibold">{project.name}</h2>
        {overview && overview.baseState !== "unknown" && (
          <Badge tone={overview.baseState === "red" ? "bad" : overview.baseState === "green" ? "ready" : "work"}>
            {overview.base} {overview.baseState}
          </Badge>
        )}
        {project.trusted === false && <Badge tone="needs">commands not trusted</Badge>}
      </div>
      <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1 text-sm">
        <dt className="text-ink-soft">Folder</dt>
        <dd className="min-w-0">
          <Path text={project.path} />
        </dd>
        {project.repo && (
          <>
            <dt className="text-ink-soft">Forge</dt>
            <dd>{project.repo}</dd>
          </>
        )}
        <dt className="text-ink-soft">Base</dt>
        <dd>{project.defaultBranch ?? "unknown"}</dd>
        <dt className="text-ink-soft">Agents</dt>
        <dd>
          {overview ? `${overview.active}${overview.limit === null ? "" : ` of ${overview.limit}`} at work, ` : ""}
          <Link href={`/?project=${encodeURIComponent(project.id)}`} className="text-accent underline underline-offset-2">
            {count} {count === 1 ? "session" : "sessions"}
          </Link>
        </dd>
        <dt className="text-ink-soft">Configuration</dt>
        <dd className="min-w-0">{project.config ? <Path text={project.config} /> : "none; defaults are used"}</dd>
      </dl>
      {overview && overview.baseFailing.length > 0 && <p className="text-sm text-bad">fails on the base branch: {overview.baseFailing.join(", ")}</p>}
      {may("admin") && (
        <div className="mt-auto flex gap-2">
          {project.trusted === false && (
            <Button small onClick={() => setAsked("trust")}>
              See what it wants to run
            </Button>
          )}
          {project.trusted && (
            <Button small onClick={() => setAsked("prove")}>
              Prove set-up and checks
            </Button>
          )}
          <Button small look="quiet" className="ml-auto" onClick={() => setAsked("forget")}>
            Forget
          </Button>
        </div>
      )}
      {asked === "prove" && <ProofDialog project={project} proposal={null} onClose={() => setAsked(null)} />}
      {asked === "trust" && <TrustDialog project={project} onClose={() => setAsked(null)} />}
      <Dialog open={asked === "forget"} onClose={() => setAsked(null)} title={`Forget ${project.name}?`}>
        <p className="text-ink-soft">No agent will be started there any more. The repository and everything in it stay as they are, and it can be added again.</p>
        <div className="flex justify-end gap-2">
          <Button onClick={() => setAsked(null)}>Keep it</Button>
          <Button
            look="danger"
            onClick={() => {
              setAsked(null);
              void forget();
            }}
          >
            Forget it
          </Button>
        </div>
      </Dialog>
    </article>
  );
}

/** A path that breaks between its folders. */
function Path({ text }: { text: string }) {
  return (
    <span className="font-mono text-xs [overflow-wrap:anywhere]">
      {text.split("/").map((part, index) => (
        <span key={index}>
          {index > 0 && (
            <>
              /<wbr />
            </>
          )}
          {part}
        </span>
      ))}
    </span>
  );
}

function TrustDialog({ project, onClose }: { project: Project; onClose: () => void }) {
  const known = useQueryClient();
  const wanted = useQuery({ queryKey: ["trust", project.path], queryFn: () => api.get<Trust>("/api/projects/trust", { path: project.path }), staleTime: 0 });
  const trust = async () => {
    if (await attempt(() => api.post("/api/projects/trust", { path: project.path, digest: wanted.data?.digest }), `${project.name}'s commands may run`)) {
      onClose();
      await known.invalidateQueries({ queryKey: ["fleet", "projects"] });
    }
  };
  return (
    <Dialog open onClose={onClose} title={`Commands that came with ${project.name}`} wide>
      <p className="text-ink-soft">They run on this machine with your rights. Trust them if you would type them yourself; a change asks again.</p>
      {wanted.error && <ProblemNote error={wanted.error} />}
      <pre className="overflow-auto rounded-md bg-sunken p-3 font-mono text-xs whitespace-pre-wrap">{wanted.data?.commands.map(String).join("\n")}</pre>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Not now</Button>
        <Button look="primary" disabled={!wanted.data} onClick={() => void trust()}>
          Trust them
        </Button>
      </div>
    </Dialog>
  );
}

function AddProject({ onClose, onAdded }: { onClose: () => void; onAdded: (project: AddedProject) => void }) {
  const known = useQueryClient();
  const [where, setWhere] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const add = async () => {
    setBusy(true);
    setError(null);
    const url = /^[a-z+]+:\/\/|^[^/]+@[^/]+:/.test(where.trim());
    try {
      const added = await api.post<AddedProject>("/api/projects", { [url ? "url" : "path"]: where.trim(), init: true });
      await known.invalidateQueries({ queryKey: ["fleet", "projects"] });
      onAdded(added);
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return (
    <Dialog open onClose={onClose} title="Add a repository">
      <form
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          void add();
        }}
      >
        <Field label="Folder on the daemon's machine, or an address to clone">
          <Input value={where} onChange={(event) => setWhere(event.target.value)} placeholder="~/code/app or https://github.com/me/app.git" autoFocus />
        </Field>
        {error ? <ProblemNote error={error} /> : null}
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={busy} disabled={!where.trim()}>
            Add
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
