import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { frame, question, session } from "../pages/board/made";
import { announce, askToNotify, notifying, stopNotifying, useNotifying, wording } from "./notify";
import { store } from "./store";

const shown: [title: string, options: NotificationOptions][] = [];

class Fake {
  static permission: NotificationPermission = "granted";
  static requestPermission = vi.fn(async () => Fake.permission);
  constructor(title: string, options: NotificationOptions) {
    shown.push([title, options]);
  }
}

const asks = session({ status: "needs_input", column: "Needs you" });
let silence: () => void = () => undefined;

beforeEach(() => {
  shown.length = 0;
  localStorage.clear();
  Fake.permission = "granted";
  vi.stubGlobal("Notification", Fake);
  vi.stubGlobal("isSecureContext", true);
  vi.spyOn(document, "visibilityState", "get").mockReturnValue("hidden");
});

afterEach(() => {
  silence();
  store.forget();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const settled = () => new Promise((done) => setTimeout(done));

test("a question is told once, however often the stream repeats it, and counted in the title", async () => {
  silence = announce();
  store.take(frame({ complete: true, sessions: [session()], questions: [] }));
  expect(document.title).toBe("Agent Orchestrator");
  store.take(frame({ sessions: [asks], questions: [question()] }));
  store.take(frame({ questions: [question({ context: ["more"] })] }));
  store.take(frame({ complete: true, sessions: [asks], questions: [question()] }));
  await settled();
  expect(shown.map(([title, options]) => [title, options.body])).toEqual([["Fix the login asks", "Which database?"]]);
  expect(document.title).toBe("(1) Agent Orchestrator");
});

test("a session that fails again calls again", async () => {
  const failed = session({ status: "failed", column: "Needs you" });
  silence = announce();
  store.take(frame({ complete: true, sessions: [session()], questions: [] }));
  for (const one of [failed, session(), failed]) store.take(frame({ sessions: [one] }));
  await settled();
  expect(shown.map(([title]) => title)).toEqual(["Failed: Fix the login", "Failed: Fix the login"]);
});

test("what waited before the page was opened is not told, nor what comes while it is looked at", async () => {
  silence = announce();
  store.take(frame({ complete: true, sessions: [asks], questions: [question()] }));
  vi.spyOn(document, "visibilityState", "get").mockReturnValue("visible");
  store.take(frame({ questions: [question(), question({ kind: "message", message: "m-1" })] }));
  await settled();
  expect(shown).toEqual([]);
});

test("nothing is told before it was asked for, nor after it was ended", async () => {
  Fake.permission = "default";
  expect(notifying()).toBe("off");
  expect(Fake.requestPermission).not.toHaveBeenCalled();
  Fake.permission = "granted";
  expect(await askToNotify()).toBe("on");
  stopNotifying();
  expect(notifying()).toBe("off");
  silence = announce();
  store.take(frame({ complete: true, sessions: [session()], questions: [] }));
  store.take(frame({ sessions: [asks], questions: [question()] }));
  await settled();
  expect(shown).toEqual([]);
});

test("a permission is told with its command, a failure with its reason", () => {
  const permission = question({ kind: "permission", permission: { tool: "Bash", command: "rm x", reason: null } });
  expect(wording({ session: asks, question: permission })).toEqual({ title: "Fix the login wants permission", body: "rm x" });
  expect(wording({ session: session({ status: "failed", why: "its agent exited with 1" }), question: null })).toEqual({ title: "Failed: Fix the login", body: "its agent exited with 1" });
});

test("drawing again does not ask the browser again; a person who comes back from its settings does", () => {
  const asks = vi.fn(() => Fake.permission);
  vi.stubGlobal("Notification", Object.defineProperty(class {}, "permission", { get: asks }));
  const { result, rerender } = renderHook(useNotifying);
  expect(result.current).toBe("on");
  const before = asks.mock.calls.length;
  for (let count = 0; count < 5; count++) rerender();
  expect(asks.mock.calls.length).toBe(before);
  Fake.permission = "denied";
  act(() => void window.dispatchEvent(new Event("focus")));
  expect(result.current).toBe("refused");
});
