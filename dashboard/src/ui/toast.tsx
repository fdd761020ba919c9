/** Short words about what was done, or why it was not; read out by screen readers. */
import { Toast } from "@base-ui/react/toast";
import type { ReactNode } from "react";

import { ApiError } from "../api/client";
import { cx } from "./cx";

const manager = Toast.createToastManager();

export const toast = {
  done: (title: string, description?: string) => manager.add({ title, description, timeout: 5000 }),
  failed: (error: unknown) =>
    manager.add({
      title: error instanceof Error ? error.message : String(error),
      description: error instanceof ApiError ? error.remedy : undefined,
      type: "bad",
      priority: "high",
      timeout: 12_000,
    }),
};

/** Do it; a failure is told. True if it was done. */
export async function attempt(action: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await action();
    if (done) toast.done(done);
    return true;
  } catch (error) {
    toast.failed(error);
    return false;
  }
}

function List() {
  const { toasts } = Toast.useToastManager();
  return toasts.map((one) => (
    <Toast.Root
      key={one.id}
      toast={one}
      className={cx(
        "w-full rounded-lg border bg-surface p-3 pr-9 text-sm shadow-card transition-opacity data-[ending-style]:opacity-0 data-[starting-style]:opacity-0",
        one.type === "bad" ? "border-bad/50" : "border-line",
      )}
    >
      <Toast.Title className={cx("font-medium", one.type === "bad" && "text-bad")} />
      <Toast.Description className="mt-0.5 text-ink-soft" />
      <Toast.Close aria-label="Dismiss" className="absolute top-1.5 right-1.5 size-6 rounded text-ink-soft hover:bg-raised">
        ×
      </Toast.Close>
    </Toast.Root>
  ));
}

export function Toasts({ children }: { children: ReactNode }) {
  return (
    <Toast.Provider toastManager={manager} limit={4}>
      {children}
      <Toast.Portal>
        <Toast.Viewport className="fixed right-3 bottom-3 z-50 flex w-[min(24rem,calc(100vw-1.5rem))] flex-col gap-2">
          <List />
        </Toast.Viewport>
      </Toast.Portal>
    </Toast.Provider>
  );
}
