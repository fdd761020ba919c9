/** What a session took as time went on, as a chart wants it. Pure. */
import type { UsagePoint } from "../../../api/types";

export interface Spent {
  /** Seconds since 1970. */
  at: number[];
  tokens: number[];
  /** Null as long as nobody named a price. */
  usd: (number | null)[];
}

export const spent = (points: readonly Pick<UsagePoint, "at" | "input" | "output" | "usd">[]): Spent => ({
  at: points.map((point) => Date.parse(point.at) / 1000),
  tokens: points.map((point) => point.input + point.output),
  usd: points.map((point) => point.usd),
});
