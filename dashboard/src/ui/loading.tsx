/** Something is on its way; said after a moment, so that fast things do not flicker. */
export function Loading({ label }: { label: string }) {
  return (
    <div role="status" className="flex min-h-32 items-center justify-center gap-2 p-6 text-ink-soft [animation:appear_0.2s_0.3s_both]">
      <span className="size-3 animate-pulse rounded-full bg-accent" aria-hidden />
      {label} …
    </div>
  );
}
