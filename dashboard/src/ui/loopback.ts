const OTHER_NAME: Record<string, string> = { "127.0.0.1": "localhost", localhost: "127.0.0.1" };

/** An address on this very host by the host's other name: a browser sends a page's cookie to every port of the name that set it. */
export function withoutCookie(uri: string, here: string = window.location.hostname): string {
  const url = new URL(uri);
  const other = OTHER_NAME[here];
  if (url.hostname !== here || other === undefined) return uri;
  url.hostname = other;
  return url.href;
}
