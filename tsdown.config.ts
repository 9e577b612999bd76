import { defineConfig } from "tsdown"

export default defineConfig({
  entry: { server: "src/server.ts" },
  format: "esm",
  platform: "node",
  target: "es2023",
  outDir: "dist",
  dts: false,
  fixedExtension: false,
  // The package has no runtime dependencies: OpenCode installs plugins with scripts off.
  deps: { alwaysBundle: [/.*/] },
})
