/** Search, filters and grouping, above the columns. */
import { useState, type ReactNode, type Ref } from "react";

import type { BoardSession } from "../../api/types";
import { may } from "../../auth";
import { askToNotify, useNotifying } from "../../live/notify";
import { Button } from "../../ui/button";
import { cx } from "../../ui/cx";
import { EVERYTHING, narrows, type Filter } from "./filter";
import { STATUSES, statusWord } from "./words";

interface Props {
  sessions: Iterable<BoardSession>;
  filter: Filter;
  search: Ref<HTMLInputElement>;
  onChange: (filter: Filter) => void;
  onNew: () => void;
}

export function Filters({ sessions, filter, search, onChange, onNew }: Props) {
  const [open, setOpen] = useState(false);
  const known = [...sessions];
  const projects = named(known.map((one) => one.project), filter.project);
  const agents = named(known.flatMap((one) => [one.agent, one.profile]), filter.agent);
  const present = new Set(known.map((one) => one.status));
  const set = (change: Partial<Filter>) => onChange({ ...filter, ...change });
  const chosen = [filter.project, filter.agent, filter.status, filter.group].filter(Boolean).length;
  return (
    <div role="search" aria-label="Cards" className="flex flex-wrap items-center gap-2">
      <input
        ref={search}
        type="search"
        aria-label="Search the cards"
        placeholder="Search"
        value={filter.text}
        onChange={(event) => set({ text: event.target.value })}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          set({ text: "" });
          event.currentTarget.blur();
        }}
        className={cx(FIELD, "w-44 px-2.5 placeholder:text-ink-faint max-md:min-w-0 max-md:grow")}
      />
      <Button className="md:hidden" aria-expanded={open} onClick={() => setOpen(!open)}>
        Filter{chosen > 0 && <span className="text-accent">{chosen}</span>}
      </Button>
      <div className={cx("gap-2 max-md:order-1 max-md:w-full max-md:grid-cols-2 md:contents", open ? "grid" : "hidden")}>
        {(projects.length > 1 || filter.project) && (
          <Choice label="Project" value={filter.project} onChange={(project) => set({ project })} all="All projects">
            {projects.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </Choice>
        )}
        {(agents.length > 1 || filter.agent) && (
          <Choice label="Agent or profile" value={filter.agent} onChange={(agent) => set({ agent })} all="All agents">
            {agents.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </Choice>
        )}
        <Choice label="Status" value={filter.status} onChange={(status) => set({ status })} all="Any status">
          {STATUSES.filter((one) => present.has(one) || one === filter.status).map((one) => (
            <option key={one} value={one}>
              {statusWord(one)}
            </option>
          ))}
        </Choice>
        <Choice label="Group" value={filter.group} onChange={(group) => set({ group: group as Filter["group"] })} all="Not grouped">
          <option value="project">By project</option>
          <option value="profile">By profile</option>
        </Choice>
      </div>
      {narrows(filter) && (
        <Button look="quiet" onClick={() => onChange({ ...EVERYTHING, group: filter.group })}>
          Clear
        </Button>
      )}
      <span className="ml-auto flex items-center gap-2">
        <Notifying />
        {may("operator") && (
          <Button look="primary" onClick={onNew}>
            New task
          </Button>
        )}
      </span>
    </div>
  );
}

const FIELD = "min-h-8 rounded-md border border-line bg-surface text-sm hover:border-line-strong pointer-coarse:min-h-9 pointer-coarse:text-[16px]";

function named(names: readonly (string | null)[], chosen: string): string[] {
  return [...new Set([...names, chosen || null])].filter((one): one is string => one !== null).sort();
}

function Choice({ label, value, all, onChange, children }: { label: string; value: string; all: string; onChange: (value: string) => void; children: ReactNode }) {
  return (
    <select
      aria-label={label}
      value={value}
      onChange={(event) => onChange(event.target.value)}
      className={cx(FIELD, "px-1.5 md:w-36", value ? "border-accent font-medium text-ink" : "text-ink-soft")}
    >
      <option value="">{all}</option>
      {children}
    </select>
  );
}

/** Asked for by this button only, never by itself. */
function Notifying() {
  const state = useNotifying();
  if (state === "impossible" || state === "on") return null;
  return (
    <Button
      look="quiet"
      disabled={state === "refused"}
      title={state === "refused" ? "This browser blocks notifications for this page" : "A notification when an agent needs you and this page is not in front"}
      onClick={() => void askToNotify()}
      className="max-md:hidden"
    >
      {state === "refused" ? "Notifications blocked" : "Notify me"}
    </Button>
  );
}
