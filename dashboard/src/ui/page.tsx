import type { ReactNode } from "react";

import { usePageTitle } from "../live/notify";

/** A page that is read from top to bottom. */
export function Page({ children }: { children: ReactNode }) {
  return <main className="mx-auto flex w-full max-w-5xl flex-col gap-6 p-4 sm:p-6">{children}</main>;
}

export function Heading({ title, about, children }: { title: string; about?: string; children?: ReactNode }) {
  usePageTitle(title);
  return (
    <div className="flex flex-wrap items-end gap-3">
      <div className="min-w-0 flex-1">
        <h1 className="text-xl font-semibold">{title}</h1>
        {about && <p className="text-ink-soft">{about}</p>}
      </div>
      {children}
    </div>
  );
}

export function Section({ title, about, action, children }: { title: string; about?: ReactNode; action?: ReactNode; children: ReactNode }) {
  return (
    <section aria-label={title} className="rounded-xl border border-line bg-surface p-4 shadow-card">
      <div className="mb-3 flex flex-wrap items-center gap-x-2 gap-y-1">
        <h2 className="font-semibold">{title}</h2>
        {about && <span className="text-sm text-ink-soft">{about}</span>}
        {action && <div className="ml-auto">{action}</div>}
      </div>
      {children}
    </section>
  );
}
