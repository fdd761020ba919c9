import { ApiError } from "../api/client";

/** What went wrong, and what to do. */
export function ProblemNote({ error }: { error: unknown }) {
  const text = error instanceof Error ? error.message : String(error);
  return (
    <p role="alert" className="rounded-md bg-bad-soft px-3 py-2 text-sm text-bad">
      {text}
      {error instanceof ApiError && error.remedy ? <span className="block text-ink-soft">{error.remedy}</span> : null}
    </p>
  );
}
