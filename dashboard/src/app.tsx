/** Who asks first; then the stream; then the page that the address names. */
import { QueryClientProvider } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState, useSyncExternalStore } from "react";
import { Route, Switch } from "wouter";

import { queries } from "./api/queries";
import { me, signIn } from "./auth";
import { announce, registerWorker } from "./live/notify";
import { stale } from "./live/stale";
import { follow } from "./live/stream";
import { Board } from "./pages/board/board";
import { Login } from "./pages/login";
import { Shell } from "./shell/shell";
import { Missing } from "./ui/empty";
import { Loading } from "./ui/loading";
import { Toasts } from "./ui/toast";

const Session = lazy(() => import("./pages/session/session"));
const Queue = lazy(() => import("./pages/queue/queue"));
const Plan = lazy(() => import("./pages/plan/plan"));
const Usage = lazy(() => import("./pages/usage/usage"));
const Projects = lazy(() => import("./pages/projects/projects"));
const Settings = lazy(() => import("./pages/settings/settings"));

export function App() {
  const [asked, setAsked] = useState(false);
  const who = useSyncExternalStore(me.subscribe, me.read);

  useEffect(() => {
    void signIn().finally(() => setAsked(true));
    registerWorker();
  }, []);
  useEffect(() => {
    if (!who) return;
    const stream = follow((sessions, all) => {
      if (all) void queries.invalidateQueries();
      else for (const queryKey of stale(sessions)) void queries.invalidateQueries({ queryKey });
    });
    const silence = announce();
    return () => {
      stream.close();
      silence();
    };
  }, [who]);

  if (!asked) return <Loading label="Signing in" />;
  return (
    <QueryClientProvider client={queries}>
      <Toasts>
        {who ? (
          <Shell>
            <Suspense fallback={<Loading label="Loading" />}>
              <Switch>
                <Route path="/" component={Board} />
                <Route path="/sessions/:id/:tab?">{({ id, tab }) => <Session id={id} tab={tab} />}</Route>
                <Route path="/queue" component={Queue} />
                <Route path="/plan/:id?">{({ id }) => <Plan id={id} />}</Route>
                <Route path="/usage" component={Usage} />
                <Route path="/projects" component={Projects} />
                <Route path="/settings" component={Settings} />
                <Route>
                  <Missing />
                </Route>
              </Switch>
            </Suspense>
          </Shell>
        ) : (
          <Login />
        )}
      </Toasts>
    </QueryClientProvider>
  );
}
