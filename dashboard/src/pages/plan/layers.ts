/** What comes after what, laid out in layers from left to right. Pure. */
export interface Ordered {
  id: string;
  after: readonly string[];
}

export interface Place {
  column: number;
  /** Where it begins, in heights of an item. */
  row: number;
  /** How much of an item's height it has. */
  size: number;
}

const PASSING = 0.25;
/** The part of an item's height that a line has which leads past items. */

export interface Layers {
  places: ReadonlyMap<string, Place>;
  /** The free places that a line of more than one column leads through. */
  between: (from: string, to: string) => Place[];
  columns: number;
  rows: number;
}

/** Everything stands right of what it comes after, and beside it where there is room. What is not among these counts for nothing. */
export function layered(items: readonly Ordered[]): Layers {
  const known = new Set(items.map((item) => item.id));
  const own = items.map((item) => ({ id: item.id, after: item.after.filter((other) => known.has(other)) }));
  const depth = depths(new Map(own.map((item) => [item.id, item])));
  const columns: string[][] = [];
  const before = new Map<string, string[]>();
  const put = (id: string, column: number, previous: string[]) => {
    (columns[column] ??= []).push(id);
    before.set(id, previous);
  };
  for (const { id, after } of own) put(id, depth.get(id)!, after.map((other) => beside(other, depth.get(other)!, depth.get(id)! - 1)));
  for (const { id, after } of own) {
    for (const other of after) {
      const first = depth.get(other)!;
      for (let column = first + 1; column < depth.get(id)!; column += 1) {
        if (!before.has(passing(other, column))) put(passing(other, column), column, [beside(other, first, column - 1)]);
      }
    }
  }
  const places = new Map<string, Place>();
  let rows = 0;
  columns.forEach((ids, column) => {
    const middle = (id: string) => average(before.get(id)!.flatMap((other) => places.get(other)?.row ?? []));
    const wanted = ids.map((id, index) => ({ id, index, at: middle(id) ?? index }));
    wanted.sort((a, b) => a.at - b.at || a.index - b.index);
    let row = 0;
    for (const { id } of wanted) {
      const size = known.has(id) ? 1 : PASSING;
      places.set(id, { column, row, size });
      row += size;
    }
    rows = Math.max(rows, row);
  });
  const between = (from: string, to: string) => {
    const [first, last] = [depth.get(from) ?? 0, depth.get(to) ?? 0];
    return Array.from({ length: Math.max(0, last - first - 1) }, (_, index) => places.get(passing(from, first + 1 + index))).filter((place) => place !== undefined);
  };
  return { places, between, columns: columns.length, rows };
}

/** The place in a column that all lines from an item lead through. */
const passing = (id: string, column: number) => `${id}\n${column}`;

/** Where a line from an item is in a column: at the item itself, or passing. */
const beside = (id: string, own: number, column: number) => (column <= own ? id : passing(id, column));

/** How many come one after the other before each; a circle, which nothing should have, is cut somewhere. */
function depths(byId: ReadonlyMap<string, Ordered>): Map<string, number> {
  const known = new Map<string, number>();
  const path = new Set<string>();
  const of = (id: string): number => {
    const found = known.get(id);
    if (found !== undefined || path.has(id)) return found ?? 0;
    path.add(id);
    const before = byId.get(id)!.after.filter((other) => !path.has(other));
    const own = Math.max(0, ...before.map((other) => of(other) + 1));
    path.delete(id);
    known.set(id, own);
    return own;
  };
  for (const id of byId.keys()) of(id);
  return known;
}

const average = (numbers: readonly number[]): number | null => (numbers.length ? numbers.reduce((sum, one) => sum + one, 0) / numbers.length : null);
