/** Says that what is on the page is old, and since when. Short breaks, as when the daemon restarts, do not flash. */
import { reconnect } from "../live/stream";
import { useBoard } from "../live/store";
import { Button } from "../ui/button";
import { clock } from "../ui/time";

export function Lost() {
  const lost = useBoard((board) => (board.ready ? board.lostAt : null));
  if (lost === null) return null;
  return (
    <div role="alert" className="flex flex-wrap items-center gap-x-3 gap-y-1 border-t border-bad/30 bg-bad-soft px-3 py-1.5 text-sm text-bad [animation:appear_0.2s_1s_both] sm:px-4">
      <p className="mr-auto">
        <span className="font-medium">The daemon cannot be reached.</span> What you see is as old as {clock(lost)}. It comes back by itself; if the daemon has ended: <code className="font-mono">ao start</code>
      </p>
      <Button small onClick={reconnect}>
        Try now
      </Button>
    </div>
  );
}
