import { existsSync } from "node:fs"
import { join } from "node:path"
import { defineConfig, type UserConfig } from "tsdown"
import { buildPage, solid } from "../scripts/page.ts"

/** What the terminal's OpenCode gives to its plugins: it rewrites these imports to its own copies when it loads one. */
const HOST_RUNTIME = /^(@opentui\/|solid-js)/

const shared: UserConfig = {
  cwd: process.cwd(),
  format: "esm",
  platform: "node",
  target: "es2023",
  outDir: "dist",
  dts: false,
  fixedExtension: false,
  // Not minified: OpenCode finds the imports that it rewrites by their form. No runtime dependencies: OpenCode installs
  // plugins with scripts off.
  minify: false,
  deps: { neverBundle: [HOST_RUNTIME], alwaysBundle: (id: string) => !HOST_RUNTIME.test(id) },
}

/** Of features, those that have not been deleted. */
const isThere = ({ entry }: UserConfig): boolean =>
  Object.values(entry as Record<string, string>).every((file) => existsSync(file))

export default defineConfig([
  {
    ...shared,
    entry: {
      server: "src/plugin.ts",
      ...(existsSync("src/features/terminal") && { tui: "src/features/terminal/tui.tsx" }),
    },
    // The companion's JSX. OpenCode compiles it too, but not for packages in node_modules.
    plugins: [solid({ moduleName: "@opentui/solid", generate: "universal" }, /\.tsx$/)],
    hooks: {
      "build:done": async ({ options }) => {
        if (existsSync("src/features/web")) await buildPage(join(options.outDir, "page.html"))
      },
    },
  },
  ...(
    [
      // By itself: what the bundler shared with it would bring its tables, megabytes of them, into OpenCode's own thread.
      { ...shared, entry: { tokenizer: "src/runtime/tokens/tokenizer-thread.ts" }, clean: false },
      { ...shared, entry: { validator: "src/features/schemas/validator-thread.ts" }, clean: false },
      // Sent over the wire at each connection to a host, as one script that needs nothing beside it.
      {
        ...shared,
        entry: { relay: "src/features/hosts/relay/main.ts" },
        clean: false,
        format: "cjs",
        minify: true,
      },
    ] as UserConfig[]
  ).filter(isThere),
])
