/** What is to land, in which order, what is being tried, and what was turned away. */
import { useQuery } from "@tanstack/react-query";

import { merge, takeFromQueue } from "../../actions";
import { api } from "../../api/client";
import type { Events, QueueEntry } from "../../api/types";
import { may } from "../../auth";
import { useBoard } from "../../live/store";
import { Badge, type Tone } from "../../ui/badge";
import { Button } from "../../ui/button";
import { Empty } from "../../ui/empty";
import { Heading, Page, Section } from "../../ui/page";
import { SessionLink } from "../../ui/session_link";
import { Age } from "../../ui/time";
import { attempt } from "../../ui/toast";
import { byBase, droppedOf, trying } from "./lanes";

export default function Queue() {
  const entries = useBoard((board) => board.queue);
  const lanes = byBase(entries);
  return (
    <Page>
      <Heading title="Merge queue" about="Approved changes land in this order, each checked on top of those before it." />
      {lanes.length === 0 && (
        <Empty title="Nothing waits to land">
          <p>A change gets here when it is merged by hand, or by the rule for approved and green changes.</p>
        </Empty>
      )}
      {lanes.map(([base, lane]) => (
        <Section key={base} title={`onto ${base}`}>
          <ol className="flex flex-col">
            {lane.map((entry) => (
              <Entry key={entry.session} entry={entry} />
            ))}
          </ol>
        </Section>
      ))}
      <Dropped />
    </Page>
  );
}

const TONE: Record<QueueEntry["state"], Tone> = { queued: "plain", checking: "work", green: "ready", landing: "ready", waiting: "needs" };

function Entry({ entry }: { entry: QueueEntry }) {
  return (
    <li className="relative flex gap-3 pb-4 last:pb-0">
      <div className="flex flex-col items-center" aria-hidden>
        <span className="flex size-7 items-center justify-center rounded-full border border-line bg-surface text-xs font-semibold">{entry.position}</span>
        <span className="w-px flex-1 bg-line" />
      </div>
      <div className="min-w-0 flex-1">
        <div className="flex flex-wrap items-center gap-2">
          <SessionLink id={entry.session} />
          <Badge tone={TONE[entry.state]}>{entry.state}</Badge>
          {entry.checks.map((check) => (
            <Badge key={check.name} tone={check.state === "failure" ? "bad" : check.state === "success" ? "ready" : "plain"}>
              {check.name}: {check.state}
            </Badge>
          ))}
          {may("operator") && (
            <Button small look="quiet" className="ml-auto" onClick={() => void attempt(() => takeFromQueue(entry.session), "Taken out of the queue")}>
              Take out
            </Button>
          )}
        </div>
        {entry.reason && <p className="mt-1 text-sm text-needs">waits for {entry.reason}</p>}
        <p className="mt-1 text-sm text-ink-soft">{trying(entry)}</p>
        {entry.collides.length > 0 && (
          <p className="mt-1 text-sm text-ink-soft">
            predicted to conflict with{" "}
            {entry.collides.map((id, index) => (
              <span key={id}>
                {index > 0 && ", "}
                <SessionLink id={id} />
              </span>
            ))}
          </p>
        )}
      </div>
    </li>
  );
}

function Dropped() {
  const { data } = useQuery({
    queryKey: ["fleet", "landing-failed"],
    queryFn: () => api.get<Events>("/api/events", { type: "landing-failed", limit: 20 }),
  });
  const sessions = useBoard((board) => board.sessions);
  const dropped = droppedOf(data?.events ?? []);
  if (dropped.length === 0) return null;
  return (
    <Section title="Turned away">
      <ul className="flex flex-col divide-y divide-line">
        {dropped.map((one) => (
          <li key={one.seq} className="flex flex-wrap items-baseline gap-x-3 gap-y-1 py-2">
            <SessionLink id={one.session} />
            <Badge tone={one.cause === "called-off" ? "plain" : "bad"}>{one.cause || "error"}</Badge>
            <span className="text-ink-soft">{one.reason}</span>
            <Age at={one.at} className="text-xs text-ink-faint" />
            {may("operator") && sessions.get(one.session)?.column === "Ready to merge" && (
              <Button small className="ml-auto" onClick={() => void attempt(() => merge(one.session), "In the queue again")}>
                Merge again
              </Button>
            )}
          </li>
        ))}
      </ul>
    </Section>
  );
}
