/** For whoever opened the page without a link that signs in. */
import { useState } from "react";

import { refused, signInWith } from "../auth";
import { Button } from "../ui/button";
import { ProblemNote } from "../ui/problem";

export function Login() {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(refused);
  const submit = async () => {
    setBusy(true);
    setError(null);
    await signInWith(token.trim()).catch(setError);
    setBusy(false);
  };
  return (
    <main className="mx-auto flex min-h-dvh max-w-md flex-col justify-center gap-5 p-5">
      <div className="flex items-center gap-3">
        <img src="/icon.svg" alt="" className="size-10" />
        <h1 className="text-lg font-semibold">Agent Orchestrator</h1>
      </div>
      <p className="text-ink-soft">
        The quickest way in: run <code className="rounded bg-sunken px-1.5 py-0.5 font-mono text-ink">ao dashboard</code> in a terminal. It opens this page signed in.
      </p>
      <form
        className="flex flex-col gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <label htmlFor="token" className="text-sm font-medium">
          Or paste a token
        </label>
        <input
          id="token"
          type="password"
          autoComplete="current-password"
          value={token}
          onChange={(event) => setToken(event.target.value)}
          className="min-h-9 rounded-md border border-line-strong bg-surface px-3 font-mono text-sm"
        />
        <p className="text-xs text-ink-soft">
          <code className="font-mono">ao token new NAME --role operator</code> makes one.
        </p>
        <Button type="submit" look="primary" busy={busy} disabled={!token.trim()}>
          Sign in
        </Button>
        {error ? <ProblemNote error={error} /> : null}
      </form>
    </main>
  );
}
