import type { ReactNode } from "react";

import { cx } from "./cx";

export type Tone = "needs" | "work" | "review" | "ready" | "bad" | "plain";

export const TONES: Record<Tone, string> = {
  needs: "bg-needs-soft text-needs",
  work: "bg-work-soft text-work",
  review: "bg-review-soft text-review",
  ready: "bg-ready-soft text-ready",
  bad: "bg-bad-soft text-bad",
  plain: "bg-sunken text-ink-soft",
};

/** A word on a colour; the colour never says what the word does not. */
export function Badge({ tone = "plain", title, children }: { tone?: Tone; title?: string | undefined; children: ReactNode }) {
  return (
    <span title={title} className={cx("inline-flex items-center gap-1 rounded px-1.5 py-0.5 text-xs font-medium whitespace-nowrap", TONES[tone])}>
      {children}
    </span>
  );
}
