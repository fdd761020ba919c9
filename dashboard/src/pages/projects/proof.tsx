/** What was detected for a project, with one button that trusts and proves it; and the result, with its counts. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import { api, ApiError, path } from "../../api/client";
import type { Candidate, Proof, ProofLine, ProofRunning, Proposal, ProvenCheck } from "../../api/types";
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { ProblemNote } from "../../ui/problem";

/** Prove a project: what was detected, if a proposal is given, else what is configured. Closing it ends what runs. */
export function ProofDialog({ project, proposal, onClose }: { project: { id: string; name: string }; proposal: Proposal | null; onClose: () => void }) {
  const known = useQueryClient();
  const [running, setRunning] = useState<ProofRunning | null>(null);
  const [busy, setBusy] = useState(false);
  const [proof, setProof] = useState<Proof | null>(null);
  const [error, setError] = useState<unknown>(null);
  const ending = useRef(new AbortController());
  useEffect(() => () => ending.current.abort(), []);
  const prove = async () => {
    ending.current = new AbortController();
    setBusy(true);
    setError(null);
    try {
      const body = proposal ? { detected: proposal.digest } : {};
      await api.lines<ProofLine>(
        path`/api/projects/${project.id}/prove`,
        body,
        (line) => {
          if (line.running) setRunning(line.running);
          if (line.proof) setProof(line.proof);
          if (line.problem) throw new ApiError(line.problem);
        },
        ending.current.signal,
      );
    } catch (problem) {
      if (!ending.current.signal.aborted) setError(problem);
    }
    setRunning(null);
    setBusy(false);
    await known.invalidateQueries({ queryKey: ["fleet", "projects"] });
  };
  return (
    <Dialog open onClose={onClose} title={proposal ? `Set-up and tests of ${project.name}` : `Prove ${project.name}`} wide>
      {proposal && !proof && <Detected proposal={proposal} />}
      {!proof && (
        <p className="text-ink-soft">
          {proposal ? "These commands run this repository's scripts, with your rights. " : ""}
          They run in a clean checkout of the base branch; your own checkout stays as it is.
        </p>
      )}
      {busy && (
        <p role="status" className="font-mono text-xs [overflow-wrap:anywhere]">
          {running ? `${running.of > 1 ? `${running.attempt} of ${running.of}: ` : ""}${running.command}, ${seconds(running.seconds)}` : "making a clean checkout …"}
        </p>
      )}
      {proof && <Result proof={proof} />}
      {error ? <ProblemNote error={error} /> : null}
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>{proof ? "Close" : busy ? "Cancel" : "Not now"}</Button>
        {!proof && (
          <Button look="primary" busy={busy} onClick={() => void prove()}>
            {proposal ? "Trust and prove" : "Prove"}
          </Button>
        )}
      </div>
    </Dialog>
  );
}

function Detected({ proposal }: { proposal: Proposal }) {
  const [first, ...others] = proposal.candidates;
  if (!first) return null;
  return (
    <dl className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1 text-sm">
      <Row name="Detected" text={`${first.ecosystem} (${first.evidence.join(", ")})`} />
      <Row name="Set-up" text={first.setUp.join(" && ") || "none needed"} code />
      <Row name="Test" text={first.test ?? "none"} code />
      {first.lint && <Row name="Lint" text={first.lint} code />}
      {proposal.commands.length > 0 && <Row name="Agents may run" text={proposal.commands.join(", ")} code />}
      {others.map((one, index) => (
        <Row key={index} name={index ? "" : "Otherwise"} text={way(one)} code />
      ))}
    </dl>
  );
}

function Row({ name, text, code }: { name: string; text: string; code?: boolean }) {
  return (
    <>
      <dt className="text-ink-soft">{name}</dt>
      <dd className={code ? "min-w-0 font-mono text-xs [overflow-wrap:anywhere]" : "min-w-0"}>{text}</dd>
    </>
  );
}

function Result({ proof }: { proof: Proof }) {
  return (
    <div role="status" className="flex flex-col gap-2">
      <p className={proof.proven ? "font-medium" : "font-medium text-bad"}>{sentence(proof)}</p>
      {!proof.proven && (
        <>
          <ul className="list-disc pl-5 text-sm text-ink-soft">
            {proof.tried.map((one, index) => (
              <li key={index}>
                tried <code className="font-mono text-xs">{[...one.setUp, one.test ?? ""].filter(Boolean).join(" && ")}</code>: {one.reason || "works"}
              </li>
            ))}
          </ul>
          <pre className="max-h-60 overflow-auto rounded-md bg-sunken p-3 font-mono text-xs whitespace-pre-wrap">{proof.summary}</pre>
          <p className="text-sm text-ink-soft">
            Set <code className="font-mono">postCreate</code> and <code className="font-mono">ci</code> in the configuration, then run <code className="font-mono">ao init --check</code>.
          </p>
        </>
      )}
      {proof.leftOut.map((one) => (
        <p key={one} className="text-sm text-ink-soft">
          Left out: {one}
        </p>
      ))}
      {proof.drift.map((one) => (
        <p key={one} className="text-sm text-ink-soft">
          Differs: {one}
        </p>
      ))}
      {proof.written && <p className="text-sm text-ink-soft">Written to {proof.written}.</p>}
    </div>
  );
}

function way(candidate: Candidate): string {
  return [...candidate.setUp, candidate.test ?? ""].filter(Boolean).join(" && ");
}

/** `set-up 12 s; 295 passed, 2 failed on main, 4.1 s`. */
export function sentence(proof: Proof): string {
  if (!proof.proven) return `Not proven: ${proof.reason}`;
  const name = (check: ProvenCheck) => (proof.checks.length > 1 ? `${check.name}: ` : "");
  const words = proof.setUp.commands.length ? [`set-up ${seconds(proof.setUp.seconds)}`] : [];
  words.push(...proof.checks.map((check) => `${name(check)}${outcome(check, proof.base)}, ${seconds(check.seconds)}`));
  return (proof.checks.length ? words : [...words, "no test command was found"]).join("; ");
}

function outcome(check: ProvenCheck, base: string): string {
  const counts = [check.passed ? `${check.passed} passed` : "", check.failed ? `${check.failed} failed` : ""].filter(Boolean).join(", ");
  if (check.state === "failure") return `${counts || "fails"} on ${base}`;
  return `${counts || "passes"}${check.state === "flaky" ? " (flaky)" : ""}`;
}

function seconds(value: number): string {
  return `${value >= 10 ? Math.round(value) : value.toFixed(1)} s`;
}
