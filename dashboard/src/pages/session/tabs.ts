/** The parts of a session's page, as its address names them. */
export type Tab = "terminal" | "changes" | "timeline" | "checks" | "details";

export const TABS: readonly { tab: Tab; label: string }[] = [
  { tab: "terminal", label: "Terminal" },
  { tab: "changes", label: "Changes" },
  { tab: "timeline", label: "Timeline" },
  { tab: "checks", label: "Checks" },
  { tab: "details", label: "Details" },
];

/** `diff` is what the command line calls a change. */
export function tabOf(named: string | undefined): Tab {
  if (named === "diff") return "changes";
  return TABS.find((one) => one.tab === named)?.tab ?? "terminal";
}
