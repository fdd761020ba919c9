import { withoutCookie } from "../../../ui/loopback";

/** What a click on an address in a terminal does. Agents print what others wrote, so nothing but the web is opened. */
export type Opening = "open" | "ask" | "refuse";

/** `shown` is the text that was clicked: an address that the text does not show is asked about first. */
export function opening(uri: string, shown: string): Opening {
  let url: URL;
  try {
    url = new URL(uri);
  } catch {
    return "refuse";
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return "refuse";
  if (url.username || url.password) return "ask";
  return shown.trim() === uri ? "open" : "ask";
}

export function openOutside(uri: string): void {
  window.open(withoutCookie(uri), "_blank", "noopener,noreferrer");
}
