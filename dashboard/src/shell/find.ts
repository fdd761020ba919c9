/** Which entries a few typed letters mean: all words must occur; a beginning counts more than a middle. */
export interface Entry {
  id: string;
  label: string;
  hint: string;
  keys?: string | undefined;
  run: () => void;
}

export function found(entries: readonly Entry[], text: string): Entry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const ranked: [number, Entry][] = [];
  for (const entry of entries) {
    const all = `${entry.label} ${entry.hint}`.toLowerCase();
    if (!words.every((word) => all.includes(word))) continue;
    ranked.push([words.reduce((sum, word) => sum + rank(all, word), 0), entry]);
  }
  return ranked.sort((a, b) => a[0] - b[0]).map(([, entry]) => entry);
}

function rank(text: string, word: string): number {
  if (text.startsWith(word)) return 0;
  return new RegExp(`[^\\p{L}\\p{N}]${word.replace(/[^\p{L}\p{N}]/gu, "\\$&")}`, "u").test(text) ? 1 : 2;
}
