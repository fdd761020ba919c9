import { Dialog as Base } from "@base-ui/react/dialog";
import type { ReactNode } from "react";

/** A question or a form on top of the page; Escape closes it and the focus goes back. */
export function Dialog({
  open,
  onClose,
  title,
  wide,
  children,
}: {
  open: boolean;
  onClose: () => void;
  title: string;
  wide?: boolean;
  children: ReactNode;
}) {
  return (
    <Base.Root open={open} onOpenChange={(now) => !now && onClose()}>
      <Base.Portal>
        <Base.Backdrop className="fixed inset-0 z-40 bg-black/40" />
        <Base.Popup
          className={`fixed top-[8vh] left-1/2 z-40 flex max-h-[84vh] w-[calc(100vw-1.5rem)] -translate-x-1/2 flex-col gap-3 overflow-auto rounded-xl border border-line bg-surface p-5 shadow-card ${wide ? "max-w-3xl" : "max-w-lg"}`}
        >
          <Base.Title className="text-base font-semibold">{title}</Base.Title>
          {children}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}
