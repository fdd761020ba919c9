/** What a session's terminal showed, as text: the part that a running program keeps no longer, or all of one that ended. */
import { useQuery } from "@tanstack/react-query";
import { useLayoutEffect, useRef } from "react";

import { api, path } from "../../../api/client";
import { Empty } from "../../../ui/empty";
import { Loading } from "../../../ui/loading";
import { ProblemNote } from "../../../ui/problem";
import { plainText } from "../checks/ansi";

const LINES = 3000;

export function Past({ id }: { id: string }) {
  const log = useQuery({ queryKey: ["session", id, "log"], queryFn: () => api.text(path`/api/sessions/${id}/log`, { tail: LINES }) });
  const end = useRef<HTMLPreElement>(null);
  useLayoutEffect(() => {
    if (end.current) end.current.scrollTop = end.current.scrollHeight;
  }, [log.data]);
  if (log.isPending) return <Loading label="Loading the output" />;
  if (log.isError) return <ProblemNote error={log.error} />;
  const text = plainText(log.data).trim();
  if (!text) return <Empty title="Nothing was printed" />;
  return (
    <pre ref={end} tabIndex={0} aria-label="Output" className="min-h-40 flex-1 overflow-auto rounded-md bg-surface p-3 font-mono text-xs leading-relaxed break-words whitespace-pre-wrap dark:bg-sunken">
      {text}
    </pre>
  );
}
