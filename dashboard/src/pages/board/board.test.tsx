import { QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import axe from "axe-core";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { queries } from "../../api/queries";
import type { BoardSession, Overview } from "../../api/types";
import { signIn } from "../../auth";
import { store } from "../../live/store";
import { Toasts } from "../../ui/toast";
import { Board } from "./board";
import { check, frame, pull, question, session } from "./made";
import * as next from "./next";

const OVERVIEW: Overview = {
  version: "1",
  active: 1,
  limit: 4,
  waiting: 0,
  projects: [{ id: "app", name: "app", base: "main", baseState: "green", baseFailing: [], active: 1, limit: 4, sessions: 1, needsYou: 0 }],
  limits: [],
  today: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, usd: null, forgeCalls: 0 },
  budgets: [],
};

type Asked = [method: string, url: string, body: unknown];

let asked: Asked[];
let answers: Record<string, unknown>;

async function show(role: "viewer" | "operator" | "admin", sessions: BoardSession[], more: Parameters<typeof frame>[0] = {}): Promise<void> {
  answers = { "/api/me": { kind: "login", role, name: "p", version: "1" }, ...answers };
  await signIn();
  store.take(frame({ complete: true, sessions, questions: [], queue: [], overview: OVERVIEW, ...more }));
  render(
    <QueryClientProvider client={queries}>
      <Toasts>
        <Board />
      </Toasts>
    </QueryClientProvider>,
  );
}

const posted = () => asked.filter(([method]) => method !== "GET");
const press = (key: string) => fireEvent.keyDown(document.activeElement ?? document.body, { key });

beforeEach(() => {
  asked = [];
  answers = {};
  history.replaceState(null, "", "/");
  queries.clear();
  vi.stubGlobal("fetch", async (url: string, { method, body }: RequestInit) => {
    asked.push([method!, url, body ? JSON.parse(body as string) : undefined]);
    const found = answers[url.split("?")[0]!];
    if (found instanceof Response) return found.clone();
    return Response.json(found ?? {}, { status: found === undefined && method === "GET" ? 404 : 200 });
  });
});

afterEach(() => {
  cleanup();
  store.forget();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

test("a change of one session draws one card of two hundred", async () => {
  const drawn = vi.spyOn(next, "nextAction");
  const sessions = Array.from({ length: 200 }, (_, index) => session({ name: `s${index}`, column: ["Needs you", "Working", "In review", "Ready to merge"][index % 4]! }));
  const questions = sessions.filter((_, index) => index % 8 === 0).map((one) => question({ session: one.id }));
  await show("operator", sessions, { questions });
  expect(drawn).toHaveBeenCalledTimes(200);
  drawn.mockClear();
  act(() => store.take(frame({ sessions: [session({ name: "s5", says: "Reading the tests" })], questions: structuredClone(questions), overview: { ...OVERVIEW } })));
  expect(screen.getByText("Reading the tests")).toBeTruthy();
  expect(drawn.mock.calls.map(([one]) => one.id)).toEqual(["app-s5"]);
}, 60_000);

test("columns say their names and counts, the newest twenty of the done ones are shown", async () => {
  const done = Array.from({ length: 25 }, (_, index) => session({ name: `d${index}`, title: `Done ${index}`, status: "merged", column: "Done" }));
  await show("operator", [session(), ...done]);
  expect(screen.getByRole("region", { name: "Working 1 session" })).toBeTruthy();
  const column = screen.getByRole("region", { name: "Done 25 sessions" });
  expect(within(column).getAllByRole("article")).toHaveLength(20);
  fireEvent.click(within(column).getByRole("button", { name: "Show all 25" }));
  expect(within(column).getAllByRole("article")).toHaveLength(25);
});

test("a permission shows its exact command and is allowed, always allowed or denied", async () => {
  const asks = question({ kind: "permission", text: "Bash: rm -rf build", request: "r-1", permission: { tool: "Bash", command: "rm -rf build", reason: "to build anew" } });
  await show("operator", [session({ status: "blocked", column: "Needs you" })], { questions: [asks] });
  expect(screen.getByText("rm -rf build").closest("pre")).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "Always" }));
  expect(posted()).toEqual([["POST", "/api/sessions/app-fix-login/answer", { decision: "always", request: "r-1" }]]);
  expect(screen.getByRole("button", { name: "Allow" }).hasAttribute("disabled")).toBe(true);
});

test.each([
  ["message", { message: "m-1" }, "Drop it", { decision: "deny", message: "m-1" }],
  ["message", { message: "m-2" }, "Let it through", { decision: "allow", message: "m-2" }],
  ["offer", { offer: "o-1", text: "ci-failed: rerun-ci?" }, "Run the checks again", { decision: "allow", offer: "o-1" }],
  ["offer", { offer: "o-2", text: "ci-failed: rerun-ci?" }, "Not now", { decision: "deny", offer: "o-2" }],
  ["offer", { offer: "o-3", text: "dependency-ended: start?" }, "Start it all the same", { decision: "allow", offer: "o-3" }],
  ["offer", { offer: "o-4", text: "dependency-ended: start?" }, "Stop it", { decision: "deny", offer: "o-4" }],
] as const)("a %s that waits (%j) is decided by %s", async (kind, change, button, body) => {
  await show("operator", [session({ column: "Needs you" })], { questions: [question({ kind, ...change })] });
  fireEvent.click(screen.getByRole("button", { name: button }));
  expect(posted()).toEqual([["POST", "/api/sessions/app-fix-login/answer", body]]);
});

test("an answer shows as queued at once, and comes back into the box when it is refused", async () => {
  answers["/api/sessions/app-fix-login/answer"] = Response.json({ detail: "it asks nothing", remedy: "send it a message" }, { status: 409 });
  await show("operator", [session({ status: "needs_input", column: "Needs you" })], { questions: [question({ request: "r-2" })] });
  const box = screen.getByRole<HTMLTextAreaElement>("textbox", { name: "Answer app-fix-login" });
  fireEvent.change(box, { target: { value: "SQLite" } });
  fireEvent.keyDown(box, { key: "Enter" });
  expect(screen.getByText("queued")).toBeTruthy();
  expect(box.value).toBe("");
  await waitFor(() => expect(box.value).toBe("SQLite"));
  expect(screen.queryByText("queued")).toBeNull();
  expect(posted()).toEqual([["POST", "/api/sessions/app-fix-login/answer", { text: "SQLite", request: "r-2" }]]);
});

test("a merge is under way from the press until the stream says how it goes", async () => {
  const ready = session({ status: "mergeable", column: "Ready to merge", pr: pull({ review: "approved" }) });
  await show("operator", [ready], { questions: [question({ kind: "offer", offer: "o-1", text: "approved-and-green: merge?" })] });
  fireEvent.click(screen.getByRole("button", { name: /^Merge/ }));
  expect(screen.getByText("merging…")).toBeTruthy();
  expect(posted()).toEqual([["POST", "/api/sessions/app-fix-login/merge", {}]]);
  act(() => store.take(frame({ sessions: [session({ status: "merging" })], questions: [] })));
  expect(screen.queryByText("merging…")).toBeNull();
});

test("the keys walk over the cards, answer and search", async () => {
  const sessions = [
    session({ name: "a", title: "A", status: "blocked", column: "Needs you" }),
    session({ name: "b", title: "B", status: "failed", column: "Needs you" }),
    session({ name: "c", title: "C" }),
  ];
  await show("operator", sessions, { questions: [question({ session: "app-a", kind: "permission", permission: { tool: "Bash", command: "ls", reason: null }, since: "2026-11-15T09:00:00Z" })] });
  const at = () => document.activeElement?.getAttribute("data-card");
  press("j");
  expect(at()).toBe("app-a");
  press("j");
  expect(at()).toBe("app-b");
  press("ArrowRight");
  expect(at()).toBe("app-c");
  expect(document.querySelectorAll("[data-card][tabindex='0']")).toHaveLength(1);
  press("r");
  expect(document.activeElement?.getAttribute("aria-label")).toBe("Message to app-c");
  press("Escape");
  expect(at()).toBe("app-c");
  press("h");
  press("k");
  expect(at()).toBe("app-a");
  press("a");
  expect(posted()).toEqual([["POST", "/api/sessions/app-a/answer", { decision: "allow" }]]);
  press("/");
  expect(document.activeElement?.getAttribute("type")).toBe("search");
});

test("a key that decides first shows which card it means", async () => {
  const asks = question({ kind: "permission", permission: { tool: "Bash", command: "ls -l", reason: null }, since: "2026-11-15T09:30:00Z" });
  await show("operator", [session({ status: "blocked", column: "Needs you" })], { questions: [asks] });
  press("a");
  expect(posted()).toEqual([]);
  expect(document.activeElement?.getAttribute("data-card")).toBe("app-fix-login");
  press(".");
  expect(posted()).toEqual([["POST", "/api/sessions/app-fix-login/answer", { decision: "allow" }]]);
});

test("a card leads to its session by a click, by Enter, and to its change by its number", async () => {
  await show("operator", [session({ status: "review_pending", column: "In review", pr: pull() })]);
  fireEvent.click(screen.getByRole("link", { name: "Fix the login" }));
  expect(location.pathname).toBe("/sessions/app-fix-login");
  fireEvent.click(screen.getByRole("link", { name: /Pull request 7/ }));
  expect(location.pathname).toBe("/sessions/app-fix-login/changes");
  press("j");
  press("Enter");
  expect(location.pathname).toBe("/sessions/app-fix-login");
});

test("the focus goes with its card to another column", async () => {
  await show("operator", [session({ name: "a", column: "Needs you", status: "failed" }), session({ name: "b", column: "Needs you", status: "failed" })]);
  press("j");
  press("j");
  act(() => store.take(frame({ sessions: [session({ name: "b" })] })));
  expect(document.activeElement?.getAttribute("data-card")).toBe("app-b");
});

test("the address keeps the filter", async () => {
  history.replaceState(null, "", "/?q=login");
  await show("operator", [session(), session({ name: "other", title: "Another" })]);
  expect(screen.getAllByRole("article")).toHaveLength(1);
  fireEvent.change(screen.getByRole("searchbox"), { target: { value: "another" } });
  expect(location.search).toBe("?q=another");
  expect(screen.getByText("Another")).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "Clear" }));
  expect(screen.getAllByRole("article")).toHaveLength(2);
});

test("a viewer sees everything and is offered no action", async () => {
  await show("viewer", [session({ status: "needs_input", column: "Needs you" }), session({ name: "m", status: "mergeable", column: "Ready to merge" })], { questions: [question()] });
  expect(screen.getByText("Which database?")).toBeTruthy();
  expect(screen.queryByRole("button", { name: /Merge|Answer|Reply|New task/ })).toBeNull();
  expect(screen.queryByRole("textbox")).toBeNull();
});

test("an empty board asks for a repository, and says what this machine lacks", async () => {
  answers["/api/doctor"] = { checks: [{ name: "tmux", state: "warning", detail: "not found", remedy: "apt install tmux" }, { name: "git", state: "ok", detail: "2.45", remedy: null }] };
  await show("admin", [], { overview: { ...OVERVIEW, projects: [] } });
  fireEvent.change(screen.getByRole("textbox", { name: /folder/ }), { target: { value: "~/code/app" } });
  fireEvent.click(screen.getByRole("button", { name: "Add" }));
  expect(posted()).toEqual([["POST", "/api/projects", { path: "~/code/app", init: true }]]);
  expect(await screen.findByText("apt install tmux")).toBeTruthy();
  expect(screen.queryByText("git")).toBeNull();
});

test("a project without sessions asks for a task", async () => {
  answers["/api/sessions"] = { id: "app-fix", title: "Fix" };
  await show("operator", []);
  fireEvent.change(screen.getByRole("textbox", { name: "What is to be done" }), { target: { value: "Fix it" } });
  fireEvent.click(screen.getByRole("button", { name: "Start" }));
  await waitFor(() => expect(posted()).toEqual([["POST", "/api/sessions", { projectId: "app", prompt: "Fix it" }]]));
});

test("what fails on the base branch too is shown as known, and not as the session's failure", async () => {
  const checks = [check("lint", "failure", { onBase: true }), check("unit", "failure", { onBase: true }), check("docs", "success")];
  await show("operator", [session({ status: "review_pending", column: "In review", pr: pull({ checks }) })]);
  const said = screen.getByText(/lint, unit/);
  expect(said.textContent).toBe("✕ lint, unit: known on main");
  expect(said.className).not.toContain("text-bad");
  expect(screen.getByText(/1 of 3 pass/)).toBeTruthy();
});

test("a failing check is named with its tests", async () => {
  await show("operator", [session({ status: "ci_failed", pr: pull({ checks: [check("lint", "failure", { passed: 255, failed: 2 }), check("e2e", "failure", { onBase: true })] }) })]);
  expect(screen.getByText(/lint fails/).textContent).toBe("✕ lint fails: 255 passed, 2 failed");
  expect(screen.getByText(/e2e/).textContent).toBe("✕ e2e: known on main");
});

test("axe finds nothing wrong with a full board", async () => {
  const sessions = [
    session({ status: "blocked", column: "Needs you", says: "I would like to clean up", usage: { input: 1000, output: 10, usd: 0.4 } }),
    session({ name: "w", progress: { done: 1, total: 3, step: "reading", testsPassed: 4 }, collides: [{ session: "app-x", kind: "text", files: ["a.py", "b.py"] }] }),
    session({ name: "c", status: "ci_failed", pr: pull({ url: "https://forge.example/7", checks: [check("lint", "failure"), check("unit", "success")] }) }),
    session({ name: "m", status: "merged", column: "Done", pr: pull({ state: "merged" }) }),
  ];
  await show("operator", sessions, { questions: [question({ kind: "permission", permission: { tool: "Bash", command: "rm x", reason: null } })] });
  document.documentElement.lang = "en";
  document.title = "Board";
  const { violations } = await axe.run(document.body, { rules: { "color-contrast": { enabled: false }, region: { enabled: false } } });
  expect(violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" ")}`)).toEqual([]);
});
