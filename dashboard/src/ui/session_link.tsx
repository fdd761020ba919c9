import { Link } from "wouter";

import { useSession } from "../live/store";

/** A session by its title, or as it is called here. */
export function SessionLink({ id, children }: { id: string; children?: string }) {
  const session = useSession(id);
  return (
    <Link href={`/sessions/${encodeURIComponent(id)}`} className="font-medium text-ink underline decoration-line underline-offset-4 hover:decoration-accent">
      {children ?? (session?.title || id)}
    </Link>
  );
}
