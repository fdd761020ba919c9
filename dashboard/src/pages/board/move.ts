/** Where the keys lead from a card: up and down in its column, left and right to the nearest column that has cards. Pure. */
export type Direction = "up" | "down" | "left" | "right";

/** `columns`: the ids of the cards that are shown, column by column. */
export function moved(columns: readonly (readonly string[])[], from: string | null, direction: Direction): string | null {
  const column = columns.findIndex((ids) => from !== null && ids.includes(from));
  if (column < 0) return columns.find((ids) => ids.length)?.[0] ?? null;
  const ids = columns[column]!;
  const row = ids.indexOf(from!);
  if (direction === "up" || direction === "down") return ids[row + (direction === "down" ? 1 : -1)] ?? from;
  const step = direction === "right" ? 1 : -1;
  for (let at = column + step; at >= 0 && at < columns.length; at += step) {
    const there = columns[at]!;
    if (there.length) return there[Math.min(row, there.length - 1)]!;
  }
  return from;
}

/** The card that takes over when the one before is gone: the first there is. */
export function kept(columns: readonly (readonly string[])[], wanted: string | null): string | null {
  if (wanted !== null && columns.some((ids) => ids.includes(wanted))) return wanted;
  return columns.find((ids) => ids.length)?.[0] ?? null;
}
