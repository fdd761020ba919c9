/** Up to which commit a person has looked at a session's change, in this browser. */
const key = (id: string) => `ao.seen.${id}`;
const COMMIT = /^[0-9a-f]{7,64}$/;

export function lastSeen(id: string): string | null {
  const kept = localStorage.getItem(key(id));
  return kept && COMMIT.test(kept) ? kept : null;
}

export function saw(id: string, head: string | null): void {
  if (head && COMMIT.test(head)) localStorage.setItem(key(id), head);
}
