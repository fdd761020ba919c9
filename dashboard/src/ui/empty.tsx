import type { ReactNode } from "react";
import { Link } from "wouter";

/** Nothing here, why, and what to do. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="flex flex-col items-center gap-2 rounded-lg border border-dashed border-line p-8 text-center text-ink-soft">
      <p className="font-medium text-ink">{title}</p>
      {children}
    </div>
  );
}

export function Missing() {
  return (
    <main className="p-6">
      <Empty title="There is no such page">
        <Link href="/" className="text-accent underline">
          Back to the board
        </Link>
      </Empty>
    </main>
  );
}
