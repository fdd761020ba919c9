/** What the daemon told this page when it signed in. Browsers send the cookie to every port of the host, so that alone opens nothing;
 * what is kept here only pages of this very address can read. */
const KEY = "ao.page";

export const pageKey = {
  read: () => localStorage.getItem(KEY) ?? "",
  keep: (key: string) => localStorage.setItem(KEY, key),
  forget: () => localStorage.removeItem(KEY),
};

/** An address with it, for streams and sockets, whose headers a page cannot set. */
export function withPage(url: string): string {
  return `${url}${url.includes("?") ? "&" : "?"}page=${encodeURIComponent(pageKey.read())}`;
}
