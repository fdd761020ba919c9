import { shown, useAllCommands } from "../keys";
import { Dialog } from "../ui/dialog";

/** Every key that does something on this page. */
export function KeysHelp({ open, onClose }: { open: boolean; onClose: () => void }) {
  const commands = useAllCommands().filter((command) => command.keys);
  const groups = [...new Set(commands.map((command) => command.group))];
  return (
    <Dialog open={open} onClose={onClose} title="Keys" wide>
      <div className="grid gap-x-8 gap-y-4 sm:grid-cols-2">
        {groups.map((group) => (
          <section key={group} aria-label={group}>
            <h3 className="mb-1 text-xs font-semibold text-ink-faint">{group}</h3>
            <dl className="grid grid-cols-[auto_1fr] items-baseline gap-x-3 gap-y-1">
              {commands
                .filter((command) => command.group === group)
                .map((command) => (
                  <div key={command.id} className="contents">
                    <dt className="text-right">
                      <Keys keys={command.keys!} />
                    </dt>
                    <dd>{command.label}</dd>
                  </div>
                ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}

export function Keys({ keys }: { keys: string }) {
  return (
    <>
      {keys.split(" ").map((key, index) => (
        <kbd key={index} className="mr-0.5 rounded border border-line bg-raised px-1.5 py-0.5 font-mono text-xs text-ink-soft">
          {shown(key)}
        </kbd>
      ))}
    </>
  );
}
