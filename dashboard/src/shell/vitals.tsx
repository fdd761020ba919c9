/** One line on how the fleet is: connection, base branches, places, limits, today's use. */
import { useBoard } from "../live/store";
import { Badge } from "../ui/badge";
import { cx } from "../ui/cx";
import { clock } from "../ui/time";
import { dollars, tokens } from "../ui/numbers";

const CONNECTION = { live: "Connected", connecting: "Connecting", lost: "Connection lost" } as const;

export function Vitals() {
  const connection = useBoard((board) => board.connection);
  const overview = useBoard((board) => board.overview);
  return (
    <div className="flex min-w-0 flex-wrap items-center gap-x-2 gap-y-0.5 text-xs text-ink-soft max-sm:-order-1 max-sm:flex-1 sm:w-full sm:gap-x-3 sm:gap-y-1">
      <span role="status" className={cx("flex items-center gap-1.5", connection === "lost" && "font-medium text-bad")}>
        <span
          aria-hidden
          className={cx("size-2 rounded-full", connection === "live" ? "bg-ready" : connection === "lost" ? "bg-bad" : "animate-pulse bg-needs")}
        />
        {CONNECTION[connection]}
      </span>
      {overview && (
        <>
          <span>
            active {overview.active}
            {overview.limit === null ? "" : `/${overview.limit}`}
            {overview.waiting > 0 && `, ${overview.waiting} waiting`}
          </span>
          {overview.projects
            .filter((project) => project.baseState !== "unknown")
            .map((project) => (
              <span key={project.id} title={project.baseFailing.join(", ") || undefined}>
                {overview.projects.length > 1 ? `${project.name} ` : ""}
                {project.base} <Badge tone={project.baseState === "red" ? "bad" : project.baseState === "green" ? "ready" : "work"}>{project.baseState}</Badge>
              </span>
            ))}
          {overview.limits.map((limit) => (
            <Badge key={limit.account} tone="needs">
              {limit.account} limit until {clock(limit.until)}
            </Badge>
          ))}
          <span className="sm:ml-auto">
            today {overview.today.usd === null ? "" : `${dollars(overview.today.usd)}, `}
            {tokens(overview.today.input + overview.today.output)} tokens
          </span>
          {overview.budgets.map((budget) => (
            <span key={budget.project} className={cx(budget.spent >= budget.budget && "font-medium text-bad")}>
              {budget.project} {budget.unit === "usd" ? `${dollars(budget.spent)} of ${dollars(budget.budget)}` : `${tokens(budget.spent)} of ${tokens(budget.budget)}`}
            </span>
          ))}
        </>
      )}
    </div>
  );
}
