/** What may still be used: accounts with their limits, and budgets with what is spent and set aside of them. */
import { useQuery, useQueryClient } from "@tanstack/react-query";

import { api } from "../../api/client";
import type { AccountInUse, BudgetInForce, UsageTable } from "../../api/types";
import { may } from "../../auth";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { cx } from "../../ui/cx";
import { Section } from "../../ui/page";
import { spoken } from "../../ui/time";
import { attempt } from "../../ui/toast";
import { accountKey, accountLoad, figures, over, shares, whose } from "./allowance";

export function Allowances({ project }: { project: string }) {
  const { data } = useQuery({ queryKey: ["fleet", "usage", "project", project], queryFn: () => api.get<UsageTable>("/api/usage", { by: "project", project, all: !project }) });
  if (!data) return null;
  return (
    <>
      {data.accounts.length > 0 && <Accounts accounts={data.accounts} />}
      {data.budgets.length > 0 && <Budgets budgets={data.budgets} />}
    </>
  );
}

function Accounts({ accounts }: { accounts: readonly AccountInUse[] }) {
  return (
    <Section title="Accounts" about="Who met a usage limit waits until it ends, and goes on by itself.">
      <ul className="flex flex-col divide-y divide-line">
        {accounts.map((account) => (
          <Account key={accountKey(account)} account={account} />
        ))}
      </ul>
    </Section>
  );
}

function Account({ account }: { account: AccountInUse }) {
  const known = useQueryClient();
  const name = accountKey(account);
  const release = async () => {
    if (await attempt(() => api.post("/api/accounts/release", { account: name }), `${name} may be used again`)) await known.invalidateQueries({ queryKey: ["fleet", "usage"] });
  };
  const others = account.agents.filter((agent) => agent !== account.account);
  return (
    <li className="flex flex-wrap items-center gap-x-3 gap-y-1 py-2">
      <span className="min-w-32 font-medium">
        {name}
        {others.length > 0 && <span className="font-normal text-ink-faint"> {others.join(", ")}</span>}
      </span>
      <span className="min-w-0 flex-1 basis-52 text-sm text-ink-soft">
        {accountLoad(account)}
        {account.state === "held" && account.until && `; held until ${account.resetKnown === false ? "about " : ""}${spoken(account.until)}`}
        {account.state === "trying" && "; one tries whether the limit is over"}
      </span>
      <Badge tone={account.state === "held" ? "needs" : account.state === "trying" ? "work" : "plain"}>{account.state === "free" ? "free" : account.state === "held" ? "at its limit" : "trying"}</Badge>
      {account.state === "held" && may("operator") && (
        <Button small onClick={() => void release()}>
          Use it again<span className="sr-only">: {name}</span>
        </Button>
      )}
    </li>
  );
}

function Budgets({ budgets }: { budgets: readonly BudgetInForce[] }) {
  return (
    <Section title="Budgets" about="At the cap a session is paused with its work saved, and you are asked.">
      <ul className="flex flex-col divide-y divide-line">
        {budgets.map((budget) => (
          <Budget key={`${budget.name} ${budget.scope} ${budget.unit} ${budget.projects.join()}`} budget={budget} />
        ))}
      </ul>
    </Section>
  );
}

function Budget({ budget }: { budget: BudgetInForce }) {
  const filled = shares(budget);
  const full = budget.spent !== null && budget.spent >= budget.budget;
  return (
    <li className="flex flex-wrap items-center gap-x-3 gap-y-1 py-2">
      <span className="min-w-32 font-medium">
        {whose(budget)} <span className="font-normal text-ink-faint">{over(budget)}</span>
      </span>
      {budget.spent !== null && (
        <span aria-hidden className="flex h-2 min-w-24 flex-1 overflow-hidden rounded-full bg-sunken">
          <span className={cx("h-full", full ? "bg-bad" : "bg-accent")} style={{ width: `${filled.spent}%` }} />
          <span className="h-full bg-accent opacity-40" style={{ width: `${filled.reserved}%` }} />
        </span>
      )}
      <span className={cx("text-sm tabular-nums", full ? "font-medium text-bad" : "text-ink-soft")}>{figures(budget)}</span>
      {budget.unknown.length > 0 && <span className="w-full text-xs text-needs">It is not known what these use, so it cannot be enforced for them: {budget.unknown.join(", ")}</span>}
    </li>
  );
}
