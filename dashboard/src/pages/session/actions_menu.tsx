/** Everything else that can be done with a session. What ends something is asked about, with the way back. */
import { Menu } from "@base-ui/react/menu";
import { useMemo, useState } from "react";

import { close, merge, ready, rerunChecks, restore, stop, takeFromQueue, undo } from "../../actions";
import type { BoardSession, Stopped } from "../../api/types";
import { useCommands, type Command } from "../../keys";
import { useBoard } from "../../live/store";
import { Button } from "../../ui/button";
import { cx } from "../../ui/cx";
import { Dialog } from "../../ui/dialog";
import { attempt } from "../../ui/toast";
import { deeds, DEEDS, type Deed } from "./offers";

const DOING: Record<Exclude<Deed, "stop">, (id: string) => Promise<unknown>> = {
  merge,
  unqueue: takeFromQueue,
  ready,
  rerun: rerunChecks,
  restore,
  undo,
  close,
};

export function ActionsMenu({ session }: { session: BoardSession }) {
  const entry = useBoard((board) => board.queue.find((one) => one.session === session.id));
  const [asked, setAsked] = useState<Deed | null>(null);
  const offered = deeds(session, entry);
  const names = offered.join(" ");
  const commands = useMemo<Command[]>(
    () =>
      (names ? (names.split(" ") as Deed[]) : []).map((deed) => ({
        id: `session ${deed}`,
        label: `${DEEDS[deed].label}: ${session.title || session.name}`,
        group: "This session",
        run: () => choose(deed),
      })),
    [names, session.id, session.title, session.name],
  );
  useCommands(commands);

  function choose(deed: Deed): void {
    if (DEEDS[deed].danger || deed === "stop") setAsked(deed);
    else void attempt(() => DOING[deed](session.id), DEEDS[deed].done);
  }
  return (
    <>
      {offered.length > 0 && (
        <Menu.Root>
        <Menu.Trigger className="inline-flex min-h-8 items-center gap-1 rounded-md border border-line bg-surface px-3 text-sm font-medium hover:border-line-strong hover:bg-raised pointer-coarse:min-h-9">
          Actions <span aria-hidden>▾</span>
        </Menu.Trigger>
        <Menu.Portal>
          <Menu.Positioner sideOffset={4} align="end" className="z-40">
            <Menu.Popup className="min-w-48 rounded-lg border border-line bg-surface p-1 shadow-card outline-none">
              {offered.map((deed) => (
                <Menu.Item
                  key={deed}
                  onClick={() => choose(deed)}
                  className={cx(
                    "flex min-h-8 cursor-pointer items-center rounded-md px-2.5 text-sm outline-none data-[highlighted]:bg-accent-soft pointer-coarse:min-h-10",
                    DEEDS[deed].danger && "text-bad",
                  )}
                >
                  {DEEDS[deed].label}
                  {DEEDS[deed].danger && " …"}
                </Menu.Item>
              ))}
            </Menu.Popup>
          </Menu.Positioner>
        </Menu.Portal>
        </Menu.Root>
      )}
      <StopDialog session={session} open={asked === "stop"} onClose={() => setAsked(null)} />
      <Dialog open={asked === "close"} onClose={() => setAsked(null)} title="Close this change?">
        <p className="text-ink-soft">It will not land. Its branch {session.branch} and its workspace stay as they are.</p>
        <div className="flex justify-end gap-2">
          <Button onClick={() => setAsked(null)}>Keep it</Button>
          <Button
            look="danger"
            onClick={() => {
              setAsked(null);
              void attempt(() => close(session.id), DEEDS.close.done);
            }}
          >
            Close the change
          </Button>
        </div>
      </Dialog>
    </>
  );
}

/** Stop it, and say where everything went. */
function StopDialog({ session, open, onClose }: { session: BoardSession; open: boolean; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  const [stopped, setStopped] = useState<Stopped | null>(null);
  const end = () => {
    onClose();
    setStopped(null);
  };
  const doIt = async () => {
    setBusy(true);
    await attempt(async () => setStopped((await stop(session.id)) as Stopped));
    setBusy(false);
  };
  return (
    <Dialog open={open} onClose={end} title={stopped ? "Stopped" : "Stop this session?"}>
      {stopped ? (
        <>
          <ul className="list-disc pl-5 text-ink-soft">
            {stopped.saved.map((line) => (
              <li key={line}>{line}</li>
            ))}
            {stopped.saved.length === 0 && <li>Nothing was unsaved</li>}
          </ul>
          <p>
            Undo it with <code className="rounded bg-sunken px-1.5 py-0.5 font-mono text-sm">{stopped.undo}</code>
          </p>
          <div className="flex justify-end gap-2">
            <Button
              onClick={() => {
                end();
                void attempt(() => restore(session.id), "It is brought back");
              }}
            >
              Undo
            </Button>
            <Button look="primary" onClick={end}>
              Done
            </Button>
          </div>
        </>
      ) : (
        <>
          <p className="text-ink-soft">
            Its agent ends, with everything it started. What is not committed is saved first, and the workspace goes only when all of it is safe. To undo it: restore, here or by{" "}
            <code className="rounded bg-sunken px-1.5 py-0.5 font-mono text-sm">ao restore {session.id}</code>
          </p>
          <div className="flex justify-end gap-2">
            <Button onClick={end}>Let it run</Button>
            <Button look="danger" busy={busy} onClick={() => void doIt()}>
              Stop it
            </Button>
          </div>
        </>
      )}
    </Dialog>
  );
}
