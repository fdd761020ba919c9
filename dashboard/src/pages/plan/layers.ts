/** What comes after what, laid out in layers from left to right. Pure. */
export interface Ordered {
  id: string;
  after: readonly string[];
}

export interface Place {
  column: number;
  row: number;
}

export interface Layers {
  places: ReadonlyMap<string, Place>;
  columns: number;
  rows: number;
}

/** Everything stands right of what it comes after, and beside it where there is room. What is not among these counts for nothing. */
export function layered(items: readonly Ordered[]): Layers {
  const byId = new Map(items.map((item) => [item.id, item]));
  const depth = depths(byId);
  const columns: string[][] = [];
  for (const { id } of items) (columns[depth.get(id)!] ??= []).push(id);
  const places = new Map<string, Place>();
  columns.forEach((ids, column) => {
    const middle = (id: string) => average(byId.get(id)!.after.flatMap((other) => places.get(other)?.row ?? []));
    const wanted = ids.map((id, index) => ({ id, index, at: middle(id) ?? index }));
    wanted.sort((a, b) => a.at - b.at || a.index - b.index);
    wanted.forEach(({ id }, row) => places.set(id, { column, row }));
  });
  return { places, columns: columns.length, rows: Math.max(0, ...columns.map((ids) => ids.length)) };
}

/** How many come one after the other before each; a circle, which nothing should have, is cut somewhere. */
function depths(byId: ReadonlyMap<string, Ordered>): Map<string, number> {
  const known = new Map<string, number>();
  const path = new Set<string>();
  const of = (id: string): number => {
    const found = known.get(id);
    if (found !== undefined || path.has(id)) return found ?? 0;
    path.add(id);
    const before = byId.get(id)!.after.filter((other) => byId.has(other) && !path.has(other));
    const own = Math.max(0, ...before.map((other) => of(other) + 1));
    path.delete(id);
    known.set(id, own);
    return own;
  };
  for (const id of byId.keys()) of(id);
  return known;
}

const average = (numbers: readonly number[]): number | null => (numbers.length ? numbers.reduce((sum, one) => sum + one, 0) / numbers.length : null);
