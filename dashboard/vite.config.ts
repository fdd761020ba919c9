/// <reference types="vitest/config" />
import { fileURLToPath } from "node:url";

import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const daemon = process.env["AO_URL"] ?? "http://127.0.0.1:3000";
const instead = (name: string) => fileURLToPath(new URL(`./src/pages/session/changes/${name}.ts`, import.meta.url));

/** The diff's highlighter knows every language, theme and engine there is: ten megabytes that are never used. Its worker is given its languages. */
const highlighting = (languages: string): Plugin => ({
  name: "highlighting",
  enforce: "pre",
  resolveId(id) {
    if (id === "shiki/langs") return instead(languages);
    if (id === "@pierre/theming/themes") return instead("themes");
    return /^(shiki\/wasm|shiki\/engine\/oniguruma|@pierre\/highlights(\/.*)?)$/.test(id) ? instead("unused") : null;
  },
});

export default defineConfig({
  plugins: [react(), tailwindcss(), highlighting("languages")],
  worker: { format: "es", plugins: () => [highlighting("unused")] },
  build: {
    outDir: "../src/agent_orchestrator/server/dist",
    emptyOutDir: true,
    target: "es2023",
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000,
  },
  server: { proxy: { "/api": { target: daemon, ws: true, changeOrigin: true } } },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"] },
});
