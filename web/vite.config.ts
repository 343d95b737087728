import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Tells the service worker which files make up the client's page, and a name for that version. */
function precache(): Plugin {
  return {
    name: "precache",
    generateBundle: {
      order: "post",
      handler(_, bundle) {
        const worker = bundle["sw.js"];
        if (worker?.type !== "chunk") this.error("the service worker was not built");
        const files = Object.values(bundle)
          .filter((file) => file.fileName !== "sw.js" && !file.fileName.includes("operator"))
          .sort((a, b) => (a.fileName < b.fileName ? -1 : 1));
        const digest = createHash("sha256");
        for (const file of files) {
          digest.update(file.fileName);
          digest.update(file.type === "chunk" ? file.code : file.source);
        }
        const names = files.map((file) => (file.fileName === "index.html" ? "./" : file.fileName));
        // The icons lie beside the pages and have no hash.
        names.push("icon.svg", "manifest.webmanifest");
        worker.code = worker.code
          .replace("__FILES__", JSON.stringify(names))
          .replace("__VERSION__", JSON.stringify(digest.digest("hex").slice(0, 16)));
      },
    },
  };
}

export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/panda_mdp/protocol/static",
    emptyOutDir: true,
    target: "es2022",
    // Everything is a file of its own: the content policy allows no data: scripts or styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      input: {
        index: here("index.html"),
        operator: here("operator.html"),
        sw: here("src/sw.ts"),
      },
      output: {
        entryFileNames: (chunk) => (chunk.name === "sw" ? "sw.js" : "assets/[name]-[hash].js"),
      },
    },
  },
  worker: { format: "es" },
  plugins: [precache()],
  // A busy machine is slow, not wrong.
  test: { include: ["test/**/*.test.ts"], environment: "node", testTimeout: 60_000 },
});
