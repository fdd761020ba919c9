/** Who is signed in: by a one-time link, by a token, or from before (the cookie that only the daemon reads). */
import { api, ApiError, whenUnknown } from "./api/client";
import { pageKey } from "./api/page";
import type { Me, SignedIn } from "./api/types";
import { store } from "./live/store";

let current: Me | null = null;
const listeners = new Set<() => void>();

function become(who: Me | null): void {
  current = who;
  if (!who) store.forget();
  for (const tell of listeners) tell();
}

export const me = {
  read: () => current,
  subscribe: (tell: () => void) => {
    listeners.add(tell);
    return () => listeners.delete(tell);
  },
};

const ROLES = ["viewer", "operator", "admin"] as const;

/** May whoever is signed in do what this role may? */
export function may(role: (typeof ROLES)[number]): boolean {
  return !!current?.role && ROLES.indexOf(current.role) >= ROLES.indexOf(role);
}

/** Take the code out of the address, where a one-time link has put it, so that it stays in no history. */
function code(): string | null {
  const given = new URLSearchParams(location.hash.slice(1)).get("login");
  if (given) history.replaceState(null, "", location.pathname + location.search);
  return given;
}

/** Why the last one-time link did not work, for the sign-in to say. */
export let refused: string | null = null;

async function enter(by: { code: string } | { token: string }): Promise<void> {
  pageKey.keep((await api.post<SignedIn>("/api/login", by)).page);
}

export async function signIn(): Promise<void> {
  whenUnknown(() => become(null));
  const given = code();
  try {
    if (given) await enter({ code: given });
  } catch (error) {
    refused = error instanceof ApiError ? `${error.message}; ${error.remedy}` : String(error);
  }
  become(await api.get<Me>("/api/me").catch(() => null));
}

export async function signInWith(token: string): Promise<void> {
  await enter({ token });
  become(await api.get<Me>("/api/me"));
}

export async function signOut(): Promise<void> {
  await api.post("/api/logout");
  pageKey.forget();
  become(null);
}
