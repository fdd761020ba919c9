/** Tokens and dollars of one session over time. */
import "uplot/dist/uPlot.min.css";

import { useEffect, useRef } from "react";
import uPlot from "uplot";

import { useDark } from "../../../theme";
import { dollars, tokens } from "../../../ui/numbers";
import type { Spent } from "./spent";

const HEIGHT = 180;
const MINUTES = 600;
const DAY = 86_400;

/** A moment as precise as the chart is wide. */
function moment(at: number, wide: number): string {
  const time = new Date(at * 1000);
  if (wide > DAY) return time.toLocaleDateString([], { day: "numeric", month: "short" });
  return time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...(wide < MINUTES && { second: "2-digit" }) });
}

export default function UsageChart({ data }: { data: Spent }) {
  const place = useRef<HTMLDivElement>(null);
  const dark = useDark();
  useEffect(() => {
    const box = place.current!;
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("ink-soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "11px ui-sans-serif, system-ui" };
    const priced = data.usd.some((value) => value !== null);
    const chart = new uPlot(
      {
        width: box.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        scales: { tokens: { range: (_, __, most) => [0, Math.max(1, most * 1.08)] }, usd: { range: (_, __, most) => [0, Math.max(0.01, most * 1.08)] } },
        series: [
          {},
          { label: "Tokens", scale: "tokens", stroke: colour("accent"), fill: `${colour("accent")}22`, width: 2, paths: uPlot.paths.stepped!({ align: 1 }) },
          ...(priced ? [{ label: "Dollars", scale: "usd", stroke: colour("ready"), width: 2, dash: [5, 3], paths: uPlot.paths.stepped!({ align: 1 }) }] : []),
        ],
        axes: [
          { ...axis, values: (_, ticks) => ticks.map((at) => moment(at, (ticks.at(-1) ?? at) - (ticks[0] ?? at))) },
          { ...axis, scale: "tokens", size: 52, values: (_, ticks) => ticks.map(tokens) },
          ...(priced ? [{ ...axis, scale: "usd", side: 1 as const, size: 56, grid: { show: false }, values: (_: uPlot, ticks: number[]) => ticks.map(dollars) }] : []),
        ],
      },
      [data.at, data.tokens, ...(priced ? [data.usd] : [])] as uPlot.AlignedData,
      box,
    );
    const resized = new ResizeObserver(() => chart.setSize({ width: box.clientWidth, height: HEIGHT }));
    resized.observe(box);
    return () => {
      resized.disconnect();
      chart.destroy();
    };
  }, [data, dark]);
  return (
    <figure className="flex flex-col gap-1">
      <div ref={place} className="h-[180px] w-full overflow-hidden" aria-hidden />
      <figcaption className="flex flex-wrap gap-x-4 text-xs text-ink-soft">
        <span className="flex items-center gap-1.5">
          <span aria-hidden className="h-0.5 w-4 bg-accent" /> Tokens, {tokens(data.tokens.at(-1) ?? 0)} in {data.at.length} {data.at.length === 1 ? "turn" : "turns"}
        </span>
        {data.usd.at(-1) != null && (
          <span className="flex items-center gap-1.5">
            <span aria-hidden className="h-0 w-4 border-t-2 border-dashed border-ready" /> Dollars, {dollars(data.usd.at(-1)!)}
          </span>
        )}
      </figcaption>
    </figure>
  );
}
