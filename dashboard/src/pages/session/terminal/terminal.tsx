/** A session's terminal with its tools: find, copy, the past, and the keys that a touch screen lacks. */
import { useEffect, useRef, useState } from "react";

import { path } from "../../../api/client";
import { withPage } from "../../../api/page";
import { may } from "../../../auth";
import { useDark } from "../../../theme";
import { Button } from "../../../ui/button";
import { cx } from "../../../ui/cx";
import { Dialog } from "../../../ui/dialog";
import { toast } from "../../../ui/toast";
import { Past } from "./past";
import { BAR } from "./keys";
import { openOutside, opening } from "./links";
import type { LineState } from "./line";
import { openScreen, type Screen } from "./screen";

const STATES: Record<LineState, string> = { connecting: "Connecting", open: "Live", lost: "Connection lost, trying again", ended: "Ended" };

export default function LiveTerminal({ id }: { id: string }) {
  const place = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen | null>(null);
  const dark = useDark();
  const [state, setState] = useState<LineState>("connecting");
  const [finding, setFinding] = useState(false);
  const [found, setFound] = useState("");
  const [asked, setAsked] = useState<string | null>(null);
  const [past, setPast] = useState(false);
  const [control, setControl] = useState(false);
  const readOnly = !may("operator");

  useEffect(() => {
    const mine = openScreen(place.current!, {
      address: (columns, rows) => withPage(`${location.origin.replace(/^http/, "ws")}${path`/api/sessions/${id}/terminal`}?columns=${columns}&rows=${rows}`),
      dark: document.documentElement.dataset["theme"] === "dark",
      readOnly,
      onState: setState,
      onLink: (uri, shown) => {
        const then = opening(uri, shown);
        if (then === "open") openOutside(uri);
        else if (then === "ask") setAsked(uri);
        else toast.failed(`Only web addresses are opened from a terminal, and this is none: ${uri.slice(0, 200)}`);
      },
      onFind: () => setFinding(true),
      onPast: () => setPast(true),
      onFound: (index, count) => setFound(count ? `${index + 1} of ${count}` : "none"),
      onControlUsed: () => setControl(false),
    });
    screen.current = mine;
    return () => mine.close();
  }, [id, readOnly]);
  useEffect(() => screen.current?.paint(dark), [dark]);

  const copy = async () => {
    await navigator.clipboard.writeText(screen.current?.text() ?? "");
    toast.done("Copied");
  };
  const endFind = () => {
    setFinding(false);
    screen.current?.endFind();
    screen.current?.focus();
  };
  return (
    <section aria-label="Terminal" className="flex min-h-0 min-w-0 flex-1 flex-col overflow-hidden rounded-lg border border-line bg-surface dark:bg-sunken">
      <div id="terminal-tools" className="flex min-h-9 flex-wrap items-center gap-1 border-b border-line bg-raised px-2 py-0.5">
        <span role="status" className={cx("mr-auto flex items-center gap-1.5 text-xs", state === "lost" ? "font-medium text-bad" : "text-ink-soft")}>
          <span aria-hidden className={cx("size-2 rounded-full", state === "open" ? "bg-ready" : state === "lost" ? "bg-bad" : state === "ended" ? "bg-line-strong" : "animate-pulse bg-needs")} />
          {STATES[state]}
          {readOnly && ", read only"}
          <span className="hidden text-ink-faint xl:inline">· Shift Esc leaves the terminal</span>
        </span>
        {finding ? (
          <Find
            found={found}
            onFind={(text, back) => (text ? screen.current?.find(text, back) : (screen.current?.endFind(), setFound("")))}
            onClose={endFind}
          />
        ) : (
          <Button look="quiet" small onClick={() => setFinding(true)}>
            Find
          </Button>
        )}
        <Button look="quiet" small onClick={() => void copy()} title="The selection, or the screen">
          Copy
        </Button>
        <Button look="quiet" small onClick={() => setPast(true)}>
          Earlier output
        </Button>
      </div>
      <div className="relative min-h-0 flex-1 bg-surface p-1.5 dark:bg-sunken">
        <div ref={place} className="h-full w-full overflow-hidden" data-terminal={state} />
      </div>
      {!readOnly && (
        <div role="toolbar" aria-label="Keys for the terminal" className="hidden gap-1 overflow-x-auto border-t border-line bg-raised p-1 pointer-coarse:flex">
          <BarKey
            label="Ctrl"
            name="Ctrl, for the next key"
            pressed={control}
            onPress={() => {
              screen.current?.holdControl(!control);
              setControl(!control);
              screen.current?.focus();
            }}
          />
          {BAR.map((key) => (
            <BarKey key={key.label} label={key.label} name={key.name} onPress={() => screen.current?.press(key.bytes)} />
          ))}
        </div>
      )}
      <Dialog open={asked !== null} onClose={() => setAsked(null)} title="Open this address?">
        <p className="text-ink-soft">The terminal shows a link whose text is another than its address:</p>
        <p className="rounded bg-sunken p-2 font-mono text-sm break-all">{asked}</p>
        <div className="flex justify-end gap-2">
          <Button onClick={() => setAsked(null)}>Don't open</Button>
          <Button
            look="primary"
            onClick={() => {
              openOutside(asked!);
              setAsked(null);
            }}
          >
            Open it
          </Button>
        </div>
      </Dialog>
      <Dialog open={past} onClose={() => setPast(false)} title="Earlier output" wide>
        <Past id={id} />
      </Dialog>
    </section>
  );
}

/** Pressing it must not take the focus, or the touch keyboard would close. */
function BarKey({ label, name, pressed, onPress }: { label: string; name: string; pressed?: boolean; onPress: () => void }) {
  return (
    <button
      type="button"
      aria-label={name}
      aria-pressed={pressed}
      onPointerDown={(event) => event.preventDefault()}
      onClick={onPress}
      className={cx("min-h-9 min-w-10 flex-1 rounded-md border px-2 text-sm", pressed ? "border-accent bg-accent-soft text-accent" : "border-line bg-surface text-ink")}
    >
      {label}
    </button>
  );
}

function Find({ found, onFind, onClose }: { found: string; onFind: (text: string, back: boolean) => void; onClose: () => void }) {
  const [text, setText] = useState("");
  return (
    <form
      role="search"
      className="flex items-center gap-1"
      onSubmit={(event) => {
        event.preventDefault();
        onFind(text, false);
      }}
    >
      <input
        autoFocus
        type="search"
        aria-label="Find in the terminal"
        placeholder="Find in the terminal"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          onFind(event.target.value, false);
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") onClose();
          else if (event.key === "Enter" && event.shiftKey) {
            event.preventDefault();
            onFind(text, true);
          }
        }}
        className="h-7 w-44 min-w-0 rounded border border-line bg-surface px-2 text-sm focus-visible:-outline-offset-1 [&::-webkit-search-cancel-button]:hidden"
      />
      <span role="status" className="min-w-12 text-center text-xs text-ink-soft">
        {text && found}
      </span>
      <Button small look="quiet" aria-label="Previous" onClick={() => onFind(text, true)}>
        ↑
      </Button>
      <Button small look="quiet" aria-label="Next" type="submit">
        ↓
      </Button>
      <Button small look="quiet" aria-label="End the search" onClick={onClose}>
        ×
      </Button>
    </form>
  );
}
