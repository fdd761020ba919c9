/** Who may come in: named tokens and signed-in browsers. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { api, path } from "../../api/client";
import type { MadeToken, Tokens as All } from "../../api/types";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { Field, Input, Select } from "../../ui/field";
import { Section } from "../../ui/page";
import { ProblemNote } from "../../ui/problem";
import { Ago } from "../../ui/time";
import { attempt } from "../../ui/toast";

export function Tokens() {
  const tokens = useQuery({ queryKey: ["tokens"], queryFn: () => api.get<All>("/api/tokens"), staleTime: 0 });
  const [name, setName] = useState("");
  const [role, setRole] = useState("viewer");
  const [made, setMade] = useState<MadeToken | null>(null);
  const make = () =>
    attempt(async () => {
      setMade(await api.post<MadeToken>("/api/tokens", { name: name.trim(), role }));
      setName("");
      await tokens.refetch();
    });
  const revoke = (id: string, title: string) =>
    attempt(async () => {
      await api.delete(path`/api/tokens/${id}`);
      await tokens.refetch();
    }, `${title} is worthless now`);
  return (
    <Section title="Access" about="Tokens for people and programs, and browsers that are signed in.">
      {tokens.error && <ProblemNote error={tokens.error} />}
      <ul className="flex flex-col divide-y divide-line">
        {tokens.data?.tokens.map((token) => (
          <li key={token.id} className="flex flex-wrap items-center gap-3 py-2">
            <span className="font-medium">{token.name}</span>
            <Badge>{token.role}</Badge>
            <span className="text-sm text-ink-soft">
              made <Ago at={token.createdAt} />
            </span>
            <Button small look="danger" className="ml-auto" onClick={() => void revoke(token.id, token.name)}>
              Revoke
            </Button>
          </li>
        ))}
      </ul>
      <form
        className="mt-3 flex flex-wrap items-end gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          void make();
        }}
      >
        <Field label="New token for">
          <Input value={name} onChange={(event) => setName(event.target.value)} placeholder="Ada's phone" />
        </Field>
        <Field label="Role">
          <Select value={role} onChange={(event) => setRole(event.target.value)}>
            <option value="viewer">viewer: sees everything</option>
            <option value="operator">operator: works with sessions</option>
            <option value="admin">admin: may do everything</option>
          </Select>
        </Field>
        <Button type="submit" disabled={!name.trim()}>
          Make
        </Button>
      </form>
      {made && (
        <p role="status" className="mt-3 rounded-md bg-ready-soft p-3 text-sm">
          Copy it now, it is shown this once: <code className="font-mono break-all select-all">{made.token}</code>
        </p>
      )}
    </Section>
  );
}
