/** The last look before a plan's tasks become issues. */
import { useId, useState } from "react";

import type { Plan } from "../../api/types";
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import { FIELD, Labelled } from "../../ui/form";
import { ProblemNote } from "../../ui/problem";

export interface How {
  start: boolean;
  groupLimit?: number;
}

export function Apply({ plan, onApply, onClose }: { plan: Plan; onApply: (how: How) => Promise<void>; onClose: () => void }) {
  const [start, setStart] = useState(true);
  const [most, setMost] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const id = useId();
  const apply = async () => {
    setBusy(true);
    setError(null);
    try {
      await onApply({ start, ...(start && Number(most) >= 1 ? { groupLimit: Math.floor(Number(most)) } : {}) });
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return (
    <Dialog open onClose={onClose} title={`Apply ${plan.id}?`}>
      <form
        className="flex flex-col gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          void apply();
        }}
      >
        <p className="text-ink-soft">
          {plan.tasks.length === 1 ? "Its task becomes an issue" : `Its ${plan.tasks.length} tasks become issues`} of {plan.project}. None begins before those that it comes after have landed.
        </p>
        <fieldset className="flex flex-col gap-1">
          <legend className="sr-only">What then</legend>
          <Choice name={id} checked={start} onChange={() => setStart(true)} label="Start now" about="Agents take them as soon as there is room." />
          <Choice name={id} checked={!start} onChange={() => setStart(false)} label="Only make the issues" about="They wait in the backlog until somebody takes them." />
        </fieldset>
        {start && (
          <Labelled id={`${id}-most`} label="At once at most" hint="Empty: as many as there is room for.">
            <input id={`${id}-most`} type="number" min={1} step={1} value={most} onChange={(event) => setMost(event.target.value)} aria-describedby={`${id}-most-hint`} className={`${FIELD} !w-28`} />
          </Labelled>
        )}
        {error ? <ProblemNote error={error} /> : null}
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Not yet</Button>
          <Button type="submit" look="primary" busy={busy}>
            Apply
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Choice({ name, checked, onChange, label, about }: { name: string; checked: boolean; onChange: () => void; label: string; about: string }) {
  return (
    <label className="flex min-h-9 items-start gap-2 rounded-md px-1 py-1 hover:bg-raised">
      <input type="radio" name={name} checked={checked} onChange={onChange} className="mt-1" />
      <span>
        <span className="font-medium">{label}</span>
        <span className="block text-sm text-ink-soft">{about}</span>
      </span>
    </label>
  );
}
