/** Keys that a touch screen has no button for, as a terminal wants them. */
export const BAR = [
  { label: "Esc", name: "Esc", bytes: "\x1b" },
  { label: "Tab", name: "Tab", bytes: "\t" },
  { label: "←", name: "Left", bytes: "\x1b[D" },
  { label: "↑", name: "Up", bytes: "\x1b[A" },
  { label: "↓", name: "Down", bytes: "\x1b[B" },
  { label: "→", name: "Right", bytes: "\x1b[C" },
  { label: "⏎", name: "Enter", bytes: "\r" },
] as const;

/** What is typed while Ctrl is held on the key bar: the first key becomes its control character. */
export function withControl(typed: string): string {
  const first = typed.charCodeAt(0);
  const upper = first >= 0x61 && first <= 0x7a ? first - 0x20 : first;
  if (upper >= 0x40 && upper <= 0x5f) return String.fromCharCode(upper & 0x1f) + typed.slice(1);
  return first === 0x20 ? `\0${typed.slice(1)}` : typed;
}

/** Programs that asked for it get arrow keys in their other form. */
export const arrows = (bytes: string, application: boolean): string => (application ? bytes.replace(/^\x1b\[([ABCD])$/, "\x1bO$1") : bytes);
