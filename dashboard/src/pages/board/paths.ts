/** Where a session's page is, and which part of it. */
export const sessionPath = (id: string, tab?: string | null): string => `/sessions/${encodeURIComponent(id)}${tab ? `/${tab}` : ""}`;

/** The page of ours that a plain click on a link leads to; null: let the browser have it. One listener serves all cards. */
export function followed(event: Pick<MouseEvent, "target" | "button" | "metaKey" | "ctrlKey" | "shiftKey" | "altKey">): string | null {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || !(event.target instanceof Element)) return null;
  const href = event.target.closest("a")?.getAttribute("href");
  return href?.startsWith("/") ? href : null;
}
