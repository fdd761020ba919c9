import type { StatsDay } from "../../api/types";
import type { Bar } from "../../ui/bars";

type Part = [name: string, className: string, value: (day: StatsDay) => number];

/** A bar for each day. */
export function byDay(days: readonly StatsDay[], parts: readonly Part[]): Bar[] {
  return days.map((day) => ({
    at: day.day,
    label: new Date(`${day.day}T12:00:00Z`).toLocaleDateString([], { day: "numeric", month: "short", timeZone: "UTC" }),
    parts: parts.map(([name, className, value]) => ({ name, className, value: value(day) })),
  }));
}

/** How often each trigger gave another try, the most frequent first. */
export function retriesOf(days: readonly StatsDay[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const day of days) for (const [trigger, count] of Object.entries(day.retries)) counts.set(trigger, (counts.get(trigger) ?? 0) + count);
  return [...counts].sort((a, b) => b[1] - a[1]);
}
