/** The daemon's HTTP API: JSON in and out, problems as errors that carry their remedy. */
import { pageKey } from "./page";
import type { Problem } from "./types";

export class ApiError extends Error {
  readonly status: number;
  readonly remedy: string;
  readonly category: string;

  constructor(problem: Partial<Problem> & { status: number }) {
    super(problem.detail ?? problem.title ?? `the daemon answered ${problem.status}`);
    this.name = "ApiError";
    this.status = problem.status;
    this.remedy = problem.remedy ?? "";
    this.category = problem.category ?? "";
  }
}

type Query = Record<string, string | number | boolean | null | undefined>;

/** Called when the daemon does not know who asks; the page then shows the sign-in. */
let onUnknown: () => void = () => undefined;

export function whenUnknown(tell: () => void): void {
  onUnknown = tell;
}

/** A path with its parts escaped: path`/api/sessions/${id}/diff`. */
export function path(parts: TemplateStringsArray, ...values: (string | number)[]): string {
  return parts.reduce((text, part, index) => text + encodeURIComponent(String(values[index - 1])) + part);
}

async function ask(method: string, url: string, body?: unknown, key?: string, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json", "X-AO-Page": pageKey.read() };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET") headers["Idempotency-Key"] = key ?? crypto.randomUUID();
  let answer: Response;
  try {
    answer = await fetch(url, { method, headers, body: body === undefined ? null : JSON.stringify(body), signal: signal ?? null });
  } catch {
    throw new ApiError({ status: 0, detail: "the daemon cannot be reached", remedy: "start it: ao start" });
  }
  if (answer.ok) return answer;
  if (answer.status === 401) onUnknown();
  const problem = (await answer.json().catch(() => ({}))) as Partial<Problem>;
  throw new ApiError({ ...problem, status: answer.status });
}

async function json<T>(method: string, url: string, body?: unknown, key?: string): Promise<T> {
  const answer = await ask(method, url, body, key);
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

function withQuery(url: string, query?: Query): string {
  const given = Object.entries(query ?? {}).filter(([, value]) => value != null && value !== false);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${url}?${text}` : url;
}

/** Post, and take each line of the answer as it comes; `signal` ends what runs. */
async function lines<T>(url: string, body: unknown, take: (line: T) => void, signal?: AbortSignal): Promise<void> {
  const answer = await ask("POST", url, body, undefined, signal);
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    const whole = (text + (value ?? "")).split("\n");
    text = done ? "" : whole.pop()!;
    for (const line of whole) if (line.trim()) take(JSON.parse(line) as T);
    if (done) return;
  }
}

export const api = {
  get: <T>(url: string, query?: Query) => json<T>("GET", withQuery(url, query)),
  text: async (url: string, query?: Query) => (await ask("GET", withQuery(url, query))).text(),
  post: <T>(url: string, body: unknown = {}, key?: string) => json<T>("POST", url, body, key),
  put: <T>(url: string, body: unknown) => json<T>("PUT", url, body),
  patch: <T>(url: string, body: unknown) => json<T>("PATCH", url, body),
  lines,
  delete: <T>(url: string, query?: Query) => json<T>("DELETE", withQuery(url, query)),
};
