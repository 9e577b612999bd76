import { transformAsync } from "@babel/core"
import { defineConfig } from "tsdown"

/** What the terminal's host gives to its plugins: it rewrites these imports to its own copies when it loads one. */
const HOST_RUNTIME = /^(@opentui\/|solid-js)/

/** Compiles the companion's JSX as Solid wants it. The host does so too, but not for packages in node_modules. */
const solid = {
  name: "solid",
  transform: {
    filter: { id: /\.tsx$/ },
    async handler(code: string, id: string) {
      const presets = [
        ["babel-preset-solid", { moduleName: "@opentui/solid", generate: "universal" }],
        "@babel/preset-typescript",
      ]
      const result = await transformAsync(code, { filename: id, configFile: false, babelrc: false, presets })
      return result?.code ? { code: result.code, map: null, moduleType: "js" as const } : undefined
    },
  },
}

export default defineConfig({
  entry: { server: "src/server.ts", tui: "src/tui.tsx", tokenizer: "src/tokenizer.ts" },
  format: "esm",
  platform: "node",
  target: "es2023",
  outDir: "dist",
  clean: true,
  dts: false,
  fixedExtension: false,
  plugins: [solid],
  // Not minified: the host finds the imports that it rewrites by their form. No runtime dependencies: OpenCode installs
  // plugins with scripts off.
  minify: false,
  deps: { neverBundle: [HOST_RUNTIME], alwaysBundle: (id: string) => !HOST_RUNTIME.test(id) },
})
