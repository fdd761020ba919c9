/** The parts of a form, alike wherever something is asked for. */
import type { ReactNode } from "react";

export const FIELD = "min-h-9 w-full rounded-md border border-line-strong bg-surface px-2.5 text-sm pointer-coarse:text-[16px]";

/** Sent off by its button, or by Ctrl or Cmd with Enter from any of its fields. */
export function Form({ onSubmit, children }: { onSubmit: () => Promise<unknown>; children: ReactNode }) {
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        void onSubmit();
      }}
      onKeyDown={(event) => {
        if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) void onSubmit();
      }}
    >
      {children}
    </form>
  );
}

export function Labelled({ id, label, hint, children }: { id: string; label: string; hint?: string; children: ReactNode }) {
  return (
    <div className="flex min-w-0 flex-col gap-1">
      <label htmlFor={id} className="text-sm font-medium">
        {label}
      </label>
      {children}
      {hint && (
        <p id={`${id}-hint`} className="text-xs text-ink-soft">
          {hint}
        </p>
      )}
    </div>
  );
}
