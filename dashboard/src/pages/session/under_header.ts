/** How high the page's own header is, as `--under-header`: what sticks below it needs to know. */
import { useLayoutEffect } from "react";

export function useUnderHeader(): void {
  useLayoutEffect(() => {
    const header = document.querySelector<HTMLElement>("#root header");
    if (!header) return;
    const root = document.documentElement;
    const measure = () => root.style.setProperty("--under-header", `${header.offsetHeight}px`);
    const watched = new ResizeObserver(measure);
    watched.observe(header);
    measure();
    return () => {
      watched.disconnect();
      root.style.removeProperty("--under-header");
    };
  }, []);
}
