import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// `DROMOS_WEB_OUT` is set by hatch_build.py, which builds beside the served folder and then swaps the two.
export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: process.env.DROMOS_WEB_OUT ?? "../src/dromos/web/static",
    emptyOutDir: true,
    target: "es2022",
    // Nothing is inlined: the Content-Security-Policy allows files of this origin only.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { output: { entryFileNames: "assets/[name]-[hash].js", chunkFileNames: "assets/[name]-[hash].js" } },
  },
  worker: { rolldownOptions: { output: { entryFileNames: "assets/[name]-[hash].js" } } },
  server: { proxy: { "/v1": process.env.DROMOS_URL ?? "http://127.0.0.1:8321" } },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
