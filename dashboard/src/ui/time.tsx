/** Ages that grow by themselves: one clock for all of them. */
import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
let now = Date.now();
let timer = 0;

function subscribe(tell: () => void): () => void {
  listeners.add(tell);
  if (!timer)
    timer = window.setInterval(() => {
      now = Date.now();
      for (const each of listeners) each();
    }, 5000);
  return () => {
    listeners.delete(tell);
    if (!listeners.size) {
      clearInterval(timer);
      timer = 0;
    }
  };
}

/** "now", "40 s", "3 min", "2 h", "5 d": as short as a card wants it. */
export function age(from: string, at: number): string {
  const seconds = Math.max(0, (at - Date.parse(from)) / 1000);
  if (seconds < 10) return "now";
  if (seconds < 60) return `${Math.floor(seconds / 10) * 10} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Made once: to make one takes longer than to draw a card. */
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function Age({ at, className }: { at: string; className?: string }) {
  const text = useSyncExternalStore(subscribe, () => age(at, Math.max(now, Date.now() - 5000)));
  return (
    <time dateTime={at} title={whole.format(new Date(at))} className={className}>
      {text}
    </time>
  );
}

/** Times within words, as people write them. */
export const spoken = (text: string): string =>
  text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)/g, (at) =>
    new Date(at).toDateString() === new Date().toDateString() ? clock(at) : whole.format(new Date(at)),
  );

/** "just now", "3 min ago" */
export function Ago({ at }: { at: string }) {
  const text = useSyncExternalStore(subscribe, () => age(at, Math.max(now, Date.now() - 5000)));
  return (
    <time dateTime={at} title={whole.format(new Date(at))}>
      {text === "now" ? "just now" : `${text} ago`}
    </time>
  );
}

/** 14:02 */
export const clock = (at: string): string => new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
