import { execFileSync, spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

/**
 * Runs what a user needs most on several versions of OpenCode, and writes what came of it into the README. Each version
 * is the platform's own package from the registry, kept under node_modules/.cache.
 */

const ROOT = fileURLToPath(new URL("..", import.meta.url))
const VERSIONS = ["1.18.28", "1.18.33", "1.18.34"]
const FEATURES = {
  "packed and installed": ["packed"],
  "main job": ["main-job"],
  "fork and resume": ["fork-resume", "fork-contract"],
  notifications: ["notifications"],
  restart: ["restart"],
  terminal: ["tui"],
  worktree: ["place", "worktree"],
  board: ["board-flow"],
} as const
const README = join(ROOT, "README.md")
const TABLE = /(<!-- versions:begin -->\n)[\s\S]*(<!-- versions:end -->)/

type Counts = { readonly numPassedTests: number; readonly numFailedTests: number }

/** The version's binary, fetched once. */
function binaryOf(version: string): string {
  const folder = join(ROOT, "node_modules/.cache/versions", version)
  const binary = join(folder, "package/bin/opencode")
  if (existsSync(binary)) return binary
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  const name = `opencode-${process.platform}-${process.arch}@${version}`
  const packed = execFileSync("npm", ["pack", "--json", name, "--pack-destination", folder], { encoding: "utf8" })
  const [{ filename }] = JSON.parse(packed) as [{ filename: string }]
  execFileSync("tar", ["-xzf", join(folder, filename), "-C", folder])
  rmSync(join(folder, filename))
  return binary
}

function run(binary: string, files: readonly string[]): Counts {
  const report = join(ROOT, "node_modules/.cache/versions/report.json")
  rmSync(report, { force: true })
  spawnSync(
    "npx",
    [
      "vitest",
      "run",
      // Some of them are of the long ones.
      "--project",
      "promises",
      "--project",
      "long",
      "--reporter=default",
      "--reporter=json",
      `--outputFile.json=${report}`,
    ].concat(files.map((file) => `/${file}.test.ts`)),
    { cwd: ROOT, stdio: "inherit", env: { ...process.env, SUPERAGENTS_OPENCODE: binary } },
  )
  if (!existsSync(report)) throw new Error("The tests did not run: see above.")
  return JSON.parse(readFileSync(report, "utf8")) as Counts
}

const cell = ({ numPassedTests: passed, numFailedTests: failed }: Counts): string =>
  failed === 0 ? `${passed} passed` : `**${failed} failed**, ${passed} passed`

/** What came of the versions that were run so far. */
function tableOf(versions: readonly string[], results: readonly (readonly Counts[])[]): string {
  const rows = Object.keys(FEATURES).map((feature, index) =>
    ["", feature, ...results.map((counts) => cell(counts[index] as Counts)), ""].join(" | ").trim(),
  )
  return [`| OpenCode | ${versions.join(" | ")} |`, `| --- |${" --- |".repeat(versions.length)}`, ...rows].join("\n")
}

const only = process.argv.slice(2)
const versions = only.length > 0 ? only : VERSIONS
const results: Counts[][] = []
for (const version of versions) {
  const binary = binaryOf(version)
  const found = execFileSync(binary, ["--version"], { encoding: "utf8" }).trim()
  if (found !== version) throw new Error(`The package of ${version} holds OpenCode ${found}.`)
  results.push(Object.values(FEATURES).map((files) => run(binary, files)))
  // After each of them: a run takes long, and what is known stays known.
  const table = tableOf(versions.slice(0, results.length), results)
  console.log(`\n${table}`)
  if (only.length > 0) continue
  const readme = readFileSync(README, "utf8")
  writeFileSync(
    README,
    readme.replace(TABLE, (_whole, begin: string, end: string) => `${begin}${table}\n${end}`),
  )
}
if (results.flat().some(({ numFailedTests }) => numFailedTests > 0)) process.exitCode = 1
