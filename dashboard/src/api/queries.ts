/** Details that are not on the stream: loaded when looked at, loaded anew when the stream says that they changed.
 *
 * Keys: ["session", ID, what…] for what belongs to one session, ["fleet", what…] for the rest that events change, and
 * anything else for what changes only by a person's hand here.
 */
import { QueryClient } from "@tanstack/react-query";

import { ApiError } from "./client";

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: Number.POSITIVE_INFINITY,
      refetchOnWindowFocus: false,
      retry: (count, error) => count < 3 && error instanceof ApiError && (error.status === 0 || error.status >= 500),
    },
  },
});
