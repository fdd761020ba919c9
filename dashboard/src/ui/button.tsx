import type { ButtonHTMLAttributes, ReactNode } from "react";

import { cx } from "./cx";

type Look = "primary" | "plain" | "quiet" | "danger";

const LOOKS: Record<Look, string> = {
  primary: "bg-accent text-on-accent hover:opacity-90",
  plain: "border border-line bg-surface text-ink hover:bg-raised hover:border-line-strong",
  quiet: "text-ink-soft hover:bg-raised hover:text-ink",
  danger: "border border-bad/40 bg-surface text-bad hover:bg-bad-soft",
};

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: Look;
  small?: boolean;
  /** Something is under way: shown, and not pressed twice. */
  busy?: boolean;
  children: ReactNode;
}

/** At least 24 px high everywhere, and 36 px where fingers press. */
export function Button({ look = "plain", small, busy, className, children, disabled, ...rest }: Props) {
  return (
    <button
      type="button"
      {...rest}
      disabled={disabled || busy}
      aria-busy={busy || undefined}
      className={cx(
        "inline-flex shrink-0 items-center justify-center gap-1.5 rounded-md font-medium whitespace-nowrap transition-colors select-none",
        "disabled:cursor-not-allowed disabled:opacity-50 pointer-coarse:min-h-9",
        small ? "min-h-6 px-2 text-xs" : "min-h-8 px-3 text-sm",
        LOOKS[look],
        className,
      )}
    >
      {children}
    </button>
  );
}
