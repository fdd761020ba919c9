/** A terminal's colours in both themes. The sixteen are chosen for their background; xterm mends what still lacks contrast. */
import type { ITheme } from "@xterm/xterm";

const LIGHT: ITheme = {
  background: "#ffffff",
  foreground: "#1c1b20",
  cursor: "#5b47d6",
  cursorAccent: "#ffffff",
  selectionBackground: "#d9d2fb",
  black: "#1c1b20",
  red: "#b3261e",
  green: "#1c7440",
  yellow: "#8a5a00",
  blue: "#1363b8",
  magenta: "#7a3fc0",
  cyan: "#0b6b78",
  white: "#6a6972",
  brightBlack: "#55545c",
  brightRed: "#c43a31",
  brightGreen: "#238a4d",
  brightYellow: "#9a6800",
  brightBlue: "#2477d0",
  brightMagenta: "#8f55d4",
  brightCyan: "#11808f",
  brightWhite: "#3b3a42",
};

const DARK: ITheme = {
  background: "#0f0f12",
  foreground: "#e8e7ee",
  cursor: "#a99bff",
  cursorAccent: "#0f0f12",
  selectionBackground: "#3d3670",
  black: "#2e2e36",
  red: "#ff8a80",
  green: "#5fd08a",
  yellow: "#f5b84b",
  blue: "#6fb4fb",
  magenta: "#c69af2",
  cyan: "#62d0dc",
  white: "#c9c8d2",
  brightBlack: "#8a8896",
  brightRed: "#ffada6",
  brightGreen: "#8be2ac",
  brightYellow: "#ffd07a",
  brightBlue: "#9ccbff",
  brightMagenta: "#dcbdff",
  brightCyan: "#92e4ec",
  brightWhite: "#ffffff",
};

export const palette = (dark: boolean): ITheme => (dark ? DARK : LIGHT);

/** Of what a search found. */
export const foundColours = (dark: boolean) =>
  dark
    ? { matchBackground: "#5a4a10", matchOverviewRuler: "#f5b84b", activeMatchBackground: "#8a6d00", activeMatchColorOverviewRuler: "#ffffff" }
    : { matchBackground: "#fbe3a8", matchOverviewRuler: "#9a5b00", activeMatchBackground: "#f5b84b", activeMatchColorOverviewRuler: "#1c1b20" };
