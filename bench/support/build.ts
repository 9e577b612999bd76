import { execFile } from "node:child_process"
import { rmSync } from "node:fs"
import { mkdtemp, readFile, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import { promisify } from "node:util"

const ROOT = fileURLToPath(new URL("../..", import.meta.url))

/** A package built from the sources as they are now, in a folder of its own: a later build does not change it. */
export type Built = { readonly folder: string; readonly entry: string }

/** Builds the plugin as it is shipped; the folder goes when this process does. */
export const buildPlugin = async (): Promise<Built> => {
  const folder = await mkdtemp(join(tmpdir(), "superagents-bench-"))
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }))
  const tsdown = join(ROOT, "node_modules", ".bin", "tsdown")
  await promisify(execFile)(
    tsdown,
    ["--config", "config/tsdown.config.ts", "--logLevel", "warn", "--out-dir", join(folder, "dist")],
    { cwd: ROOT },
  )
  const { name, version, type, main, exports } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"))
  await writeFile(join(folder, "package.json"), JSON.stringify({ name, version, type, main, exports }))
  return { folder, entry: pathToFileURL(join(folder, "dist", "server.js")).href }
}
