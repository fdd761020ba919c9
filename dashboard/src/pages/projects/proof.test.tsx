import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { queries } from "../../api/queries";
import type { Proof, ProofLine, Proposal } from "../../api/types";
import { ProofDialog, sentence } from "./proof";

const PROPOSAL: Proposal = {
  keys: ["postCreate", "ci"],
  candidates: [
    { ecosystem: "npm", setUp: ["npm ci"], test: "npm test", lint: "npm run lint", evidence: ["package-lock.json"] },
    { ecosystem: "npm", setUp: ["npm install"], test: "npm test", lint: null, evidence: ["package.json"] },
  ],
  commands: ["npm run format"],
  digest: "d1",
};

const PROOF: Proof = {
  project: "app",
  base: "main",
  commit: "c0ffee",
  proven: true,
  reason: "",
  summary: "",
  setUp: { commands: ["npm ci"], seconds: 12.2 },
  checks: [{ name: "default", command: "npm test", state: "success", seconds: 4.1, passed: 297, failed: 0, skipped: 0, failures: [] }],
  tried: [{ ecosystem: "npm", setUp: ["npm ci"], test: "npm test", proven: true, reason: "" }],
  leftOut: [],
  drift: [],
  written: "/code/app/agent-orchestrator.yaml",
};

let asked: [string, unknown][];
let lines: ProofLine[];

beforeEach(() => {
  asked = [];
  lines = [{ running: { command: "npm ci", seconds: 1, attempt: 1, of: 2 } }, { proof: PROOF }];
  vi.stubGlobal("fetch", async (url: string, { body }: RequestInit) => {
    asked.push([url, JSON.parse(body as string)]);
    return new Response(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  });
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function show(proposal: Proposal | null) {
  render(
    <QueryClientProvider client={queries}>
      <ProofDialog project={{ id: "app", name: "app" }} proposal={proposal} onClose={() => undefined} />
    </QueryClientProvider>,
  );
}

test("one button trusts and proves what is shown, and the result has its counts", async () => {
  show(PROPOSAL);
  expect(screen.getByText("npm ci")).toBeTruthy();
  expect(screen.getByText("npm install && npm test")).toBeTruthy();
  expect(screen.getByText("npm run format")).toBeTruthy();
  expect(asked).toEqual([]);
  fireEvent.click(screen.getByRole("button", { name: "Trust and prove" }));
  expect(await screen.findByText("set-up 12 s; 297 passed, 4.1 s")).toBeTruthy();
  expect(asked).toEqual([["/api/projects/app/prove", { detected: "d1" }]]);
  expect(screen.queryByRole("button", { name: "Trust and prove" })).toBeNull();
});

test("what does not work says why and what was tried", async () => {
  const tried = [{ ecosystem: "npm", setUp: ["npm ci"], test: "npm test", proven: false, reason: "module left-pad not found" }];
  lines = [{ proof: { ...PROOF, proven: false, reason: "module left-pad not found", summary: "Cannot find module 'left-pad'", tried } }];
  show(PROPOSAL);
  fireEvent.click(screen.getByRole("button", { name: "Trust and prove" }));
  expect(await screen.findByText("Not proven: module left-pad not found")).toBeTruthy();
  expect(screen.getByText("Cannot find module 'left-pad'")).toBeTruthy();
});

test("a problem on the way is shown, and it can be tried again", async () => {
  lines = [{ problem: { type: "", title: "", status: 409, detail: "what was detected changed", remedy: "read it again", category: "conflict", exitCode: 1 } }];
  show(null);
  fireEvent.click(screen.getByRole("button", { name: "Prove" }));
  expect(await screen.findByText("what was detected changed")).toBeTruthy();
  expect(asked).toEqual([["/api/projects/app/prove", {}]]);
  expect(screen.getByRole("button", { name: "Prove" })).toBeTruthy();
});

test("a red base with a working set-up is proven", () => {
  const check = { ...PROOF.checks[0]!, state: "failure" as const, passed: 295, failed: 2 };
  expect(sentence({ ...PROOF, checks: [check] })).toBe("set-up 12 s; 295 passed, 2 failed on main, 4.1 s");
});
