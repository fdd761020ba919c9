/** Bars, one a day. The chart is a picture with a name; the same numbers stand in a table for whoever wants them. */
export interface Bar {
  label: string;
  /** 2026-11-15 */
  at: string;
  parts: { name: string; value: number; className: string }[];
}

export function Bars({ title, bars, format }: { title: string; bars: Bar[]; format: (value: number) => string }) {
  const totals = bars.map((bar) => bar.parts.reduce((sum, part) => sum + part.value, 0));
  const most = Math.max(...totals, 0);
  const sum = totals.reduce((all, one) => all + one, 0);
  return (
    <figure className="flex flex-col gap-2">
      <figcaption className="flex items-baseline justify-between gap-2">
        <span className="text-sm font-medium">{title}</span>
        <span className="text-sm text-ink-soft">{format(sum)} in all</span>
      </figcaption>
      {sum === 0 ? (
        <p className="border-b border-line pb-2 text-sm text-ink-faint">Nothing yet</p>
      ) : (
        <Drawn title={title} bars={bars} totals={totals} most={most} format={format} />
      )}
    </figure>
  );
}

function Drawn({ title, bars, totals, most, format }: { title: string; bars: Bar[]; totals: number[]; most: number; format: (value: number) => string }) {
  return (
    <>
      <div role="img" aria-label={`${title} a day, at most ${format(most)}`} className="flex h-32 items-end gap-px border-b border-line">
        {bars.map((bar, index) => (
          <div key={bar.at} title={`${bar.at}: ${format(totals[index]!)}`} className="flex h-full flex-1 flex-col justify-end hover:bg-raised">
            {bar.parts.map(
              (part) => part.value > 0 && <div key={part.name} className={part.className} style={{ height: `max(2px, ${(100 * part.value) / (most || 1)}%)` }} />,
            )}
          </div>
        ))}
      </div>
      <div className="flex justify-between text-xs text-ink-faint" aria-hidden>
        <span>{bars[0]?.label}</span>
        <span>{bars.at(-1)?.label}</span>
      </div>
      <details className="text-xs text-ink-soft">
        <summary className="cursor-pointer">As a table</summary>
        <table className="mt-1 w-full">
          <tbody>
            {bars.map(
              (bar, index) =>
                totals[index]! > 0 && (
                  <tr key={bar.at}>
                    <th scope="row" className="py-0.5 text-left font-normal">
                      {bar.at}
                    </th>
                    <td className="text-right">
                      {bar.parts.length > 1 ? bar.parts.filter((part) => part.value > 0).map((part) => `${part.name} ${format(part.value)}`).join(", ") : format(totals[index]!)}
                    </td>
                  </tr>
                ),
            )}
          </tbody>
        </table>
      </details>
    </>
  );
}
