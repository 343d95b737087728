/** Build, type and pack: `node package/build.mjs [folder for the tarball]`. */

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const target = process.argv[2] ?? here(".");
for (const part of ["dist", "vectors"]) rmSync(here(part), { recursive: true, force: true });
await build({
  configFile: false,
  logLevel: "warn",
  publicDir: false,
  build: {
    outDir: here("dist"),
    target: "es2022",
    minify: false,
    lib: { entry: here("index.ts"), formats: ["es"], fileName: "index" },
  },
});
const node = (script, ...args) =>
  execFileSync(process.execPath, [here(`../node_modules/${script}`), ...args], { stdio: "inherit" });
node("typescript/bin/tsc", "-p", here("tsconfig.json"));
const vectors = here("../../tests/vectors/");
mkdirSync(here("vectors"));
for (const name of readdirSync(vectors)) {
  if (/\.(json|pmdc|pmdp)$/.test(name)) copyFileSync(vectors + name, here(`vectors/${name}`));
}
execFileSync("npm", ["pack", "--silent", "--pack-destination", target], { cwd: here("."), stdio: "inherit" });
