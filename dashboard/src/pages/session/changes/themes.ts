/** The two themes that changes are coloured with: legible on the green and the red of a diff too. They stand in for all that the highlighter knows. */
export const THEMES = { light: "github-light-high-contrast", dark: "github-dark-high-contrast" };

const KNOWN = new Map<string, { load: () => Promise<unknown> }>([
  ["github-light-high-contrast", { load: () => import("@shikijs/themes/github-light-high-contrast") }],
  ["github-dark-high-contrast", { load: () => import("@shikijs/themes/github-dark-high-contrast") }],
]);

export const themes = { getTheme: (name: string) => KNOWN.get(name) };
