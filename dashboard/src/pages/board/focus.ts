/** The card that has the focus, itself or by one of its controls. */
import { useEffect, useRef, type RefObject } from "react";

export const cardOf = (element: Element | null): string | null => element?.closest<HTMLElement>("[data-card]")?.dataset["card"] ?? null;

export const focused = (): string | null => cardOf(document.activeElement);

export const cardWithin = (region: HTMLElement | null, id: string): HTMLElement | null =>
  region?.querySelector<HTMLElement>(`[data-card="${CSS.escape(id)}"]`) ?? null;

/** A focused card that moves to another column becomes a new element: the focus goes with it, and is not lost to the page. */
export function useFollow(region: RefObject<HTMLElement | null>): void {
  const held = useRef<Element | null>(null);
  useEffect(() => {
    const take = (event: FocusEvent) => (held.current = event.target instanceof Element ? event.target : null);
    /** Removed elements lose the focus too; those are kept in mind. */
    const leave = () => setTimeout(() => held.current?.isConnected && document.activeElement !== held.current && (held.current = null));
    document.addEventListener("focusin", take);
    document.addEventListener("focusout", leave);
    return () => {
      document.removeEventListener("focusin", take);
      document.removeEventListener("focusout", leave);
    };
  }, []);
  useEffect(() => {
    const before = held.current;
    if (!before || before.isConnected || document.activeElement !== document.body) return;
    held.current = null;
    const id = cardOf(before);
    if (id) cardWithin(region.current, id)?.focus({ preventScroll: true });
  });
}
