/** The frame around every page: where one is, how the fleet is, and the keys that work everywhere. */
import { useMemo, useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";

import { me, signOut } from "../auth";
import { useCommands, type Command } from "../keys";
import { callers } from "../live/notify";
import { useBoard } from "../live/store";
import { setTheme, theme } from "../theme";
import { cx } from "../ui/cx";
import { KeysHelp } from "./help";
import { Lost } from "./lost";
import { Palette } from "./palette";
import { Vitals } from "./vitals";

const PAGES = [
  { href: "/", label: "Board", keys: "g b" },
  { href: "/queue", label: "Queue", keys: "g q" },
  { href: "/plan", label: "Plan", keys: "g p" },
  { href: "/usage", label: "Usage", keys: "g u" },
  { href: "/projects", label: "Projects", keys: "g r" },
  { href: "/settings", label: "Settings", keys: "g s" },
] as const;

type Overlay = "palette" | "keys" | null;

export function Shell({ children }: { children: ReactNode }) {
  const [overlay, setOverlay] = useState<Overlay>(null);
  const [, go] = useLocation();
  const commands = useMemo<Command[]>(
    () => [
      { id: "palette", label: "Find a session or a command", group: "Everywhere", keys: "Mod+K", run: () => setOverlay("palette") },
      { id: "keys", label: "Show the keys", group: "Everywhere", keys: "?", run: () => setOverlay("keys") },
      ...PAGES.map((page) => ({ id: `go ${page.href}`, label: `Go to ${page.label.toLowerCase()}`, group: "Go", keys: page.keys, run: () => go(page.href) })),
      { id: "theme", label: "Change between light, dark and the system's theme", group: "Everywhere", run: nextTheme },
      { id: "sign out", label: "Sign out", group: "Everywhere", run: () => void signOut() },
    ],
    [go],
  );
  useCommands(commands);
  return (
    <div className="flex min-h-dvh flex-col">
      <a href="#page" className="absolute z-50 -translate-y-full bg-surface p-2 focus:translate-y-0">
        Skip to the page
      </a>
      <header className="top-0 z-30 sm:sticky border-b border-line bg-surface/95 backdrop-blur">
        <div className="flex flex-wrap items-center gap-x-2.5 gap-y-1 px-3 py-1.5 sm:gap-x-4 sm:px-4">
          <Link href="/" className="flex items-center gap-2 font-semibold max-sm:-order-2" aria-label="Agent Orchestrator, board">
            <img src="/icon.svg" alt="" className="size-6" />
            <span className="hidden lg:inline">Agent Orchestrator</span>
          </Link>
          <Navigation />
          <div className="ml-auto flex items-center gap-2">
            <button
              type="button"
              onClick={() => setOverlay("palette")}
              className="flex min-h-8 items-center gap-2 rounded-md border border-line px-2 text-sm text-ink-soft hover:border-line-strong hover:text-ink"
            >
              <span aria-hidden>⌕</span> Find
            </button>
            <button
              type="button"
              onClick={() => setOverlay("keys")}
              aria-label="Keys"
              className="size-8 rounded-md border border-line text-ink-soft hover:border-line-strong hover:text-ink pointer-coarse:hidden"
            >
              ?
            </button>
          </div>
          <Vitals />
        </div>
        <Lost />
      </header>
      <div id="page" className="flex min-h-0 flex-1 flex-col">
        {children}
      </div>
      <Palette open={overlay === "palette"} onClose={() => setOverlay(null)} />
      <KeysHelp open={overlay === "keys"} onClose={() => setOverlay(null)} />
    </div>
  );
}

function Navigation() {
  const [here] = useLocation();
  const waiting = useBoard(callers);
  return (
    <nav aria-label="Pages" className="-mx-1 flex max-w-full gap-0.5 overflow-x-auto max-sm:order-1 max-sm:w-[calc(100%+0.5rem)] max-sm:justify-between">
      {PAGES.map((page) => {
        const current = page.href === "/" ? here === "/" || here.startsWith("/sessions") : here.startsWith(page.href);
        return (
          <Link
            key={page.href}
            href={page.href}
            aria-current={current ? "page" : undefined}
            className={cx("flex min-h-8 items-center gap-1 rounded-md px-1.5 text-[13px] pointer-coarse:min-h-9 sm:px-2 sm:text-sm", current ? "bg-sunken font-medium text-ink" : "text-ink-soft hover:text-ink")}
          >
            {page.label}
            {page.href === "/" && waiting > 0 && (
              <span className="rounded-full bg-needs-soft px-1.5 text-xs font-semibold text-needs">
                {waiting}
                <span className="sr-only"> waiting for you</span>
              </span>
            )}
          </Link>
        );
      })}
    </nav>
  );
}

function nextTheme(): void {
  const order = ["system", "light", "dark"] as const;
  setTheme(order[(order.indexOf(theme()) + 1) % order.length]!);
}

export const signedInAs = (): string => {
  const who = me.read();
  return who ? `${who.name ?? "you"}${who.role ? `, ${who.role}` : ""}` : "";
};
