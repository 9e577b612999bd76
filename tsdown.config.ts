import { defineConfig } from "tsdown"
import { buildPage, solid } from "./scripts/page.ts"

/** What the terminal's host gives to its plugins: it rewrites these imports to its own copies when it loads one. */
const HOST_RUNTIME = /^(@opentui\/|solid-js)/

export default defineConfig({
  entry: { server: "src/server.ts", tui: "src/tui.tsx", tokenizer: "src/tokenizer.ts" },
  format: "esm",
  platform: "node",
  target: "es2023",
  outDir: "dist",
  clean: true,
  dts: false,
  fixedExtension: false,
  // The companion's JSX. The host compiles it too, but not for packages in node_modules.
  plugins: [solid({ moduleName: "@opentui/solid", generate: "universal" }, /\.tsx$/)],
  hooks: { "build:done": () => buildPage("dist/page.html") },
  // Not minified: the host finds the imports that it rewrites by their form. No runtime dependencies: OpenCode installs
  // plugins with scripts off.
  minify: false,
  deps: { neverBundle: [HOST_RUNTIME], alwaysBundle: (id: string) => !HOST_RUNTIME.test(id) },
})
