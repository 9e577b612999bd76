import { execFileSync, spawnSync } from "node:child_process"
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, normalize, resolve } from "node:path"
import { FEATURES } from "../src/features/index.ts"

/**
 * Deletes a feature in a copy of the tree: its folder, its parts in other features, its lines in the registries, its
 * tests, and the features that need it. Then no line may name it: types, build, dead-code lint and the core's tests pass.
 *
 * `npm run probe -- x y` does so for x and for y. `npm run probe` says of each feature which imports name it, and
 * deletes those of `PASS` at once, for types and dead-code lint alone.
 */

/** Features that pass. */
const PASS: readonly string[] = [
  "checks",
  "shared-cache",
  "web",
  "terminal",
  "hosts",
  "worktrees",
  "schemas",
  "tries",
  "maps",
  "forks",
  "rate-limits",
  "board",
]

const ROOT = resolve(import.meta.dirname, "..")
/** Files that list features, and that a feature has a line in. */
const REGISTRIES = /^src\/features\/(index|[^/]+(\/page)?\/registry)\.tsx?$/
const IMPORT = /(?:\bfrom |\bimport\(|\bimport |\bmodule )"(\.[^"]+)"/g
/** Tests of core and runtime, which no feature is part of. */
const CORE_TESTS = ["test/unit/machine*.test.ts", "test/unit/queue.test.ts", "test/unit/transition.test.ts"]

type Sources = ReadonlyMap<string, string>

const filesIn = (root: string, folder: string): string[] =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .map((file) => `${folder}/${file}`)
    .filter((file) => /\.tsx?$/.test(file))

const readAll = (root: string): Sources =>
  new Map(
    [...filesIn(root, "src"), ...filesIn(root, "test")].map((file) => [file, readFileSync(join(root, file), "utf8")]),
  )

/** The feature, and those that need it. */
function goneWith(name: string): readonly string[] {
  const gone = new Set([name])
  for (const { name: other, needs = [] } of FEATURES) if (needs.some((each) => gone.has(each))) gone.add(other)
  return [...gone]
}

const isOf = (file: string, gone: readonly string[]): boolean =>
  gone.some(
    (name) =>
      file.startsWith(`src/features/${name}/`) || file.match(`^src/features/[^/]+/(page/)?${name}[/.]`) !== null,
  )

const importsOf = (file: string, line: string): readonly string[] =>
  [...line.matchAll(IMPORT)].map(([, path = ""]) => normalize(join(dirname(file), path)))

/** A registry without the imports of what is gone, and without the lines that use what these brought. */
function withoutLines(file: string, text: string, gone: readonly string[]): string {
  const lines = text.split("\n")
  const isGone = (line: string) => importsOf(file, line).some((path) => isOf(path, gone))
  const names = lines
    .filter(isGone)
    .flatMap((line) => [...line.matchAll(/\b\w+\b(?=[^"]* from )/g)].map(([name]) => name))
  const used = new RegExp(
    `\\b(?:${names.filter((name) => name !== "import").join("|") || "(?!)"})\\b(?:,\\s*|(?=\\]))`,
    "g",
  )
  return lines
    .filter((line) => !isGone(line))
    .join("\n")
    .replaceAll(used, "")
}

/** `file:line` of each import that names what is gone, outside of it and of registries. Tests that import it are its own. */
const namedIn = (sources: Sources, gone: readonly string[]): readonly string[] =>
  [...sources].flatMap(([file, text]) =>
    !file.startsWith("src/") || isOf(file, gone) || REGISTRIES.test(file)
      ? []
      : text
          .split("\n")
          .flatMap((line, at) =>
            importsOf(file, line).some((path) => isOf(path, gone)) ? [`${file}:${at + 1} ${line.trim()}`] : [],
          ),
  )

/** Deletes in the copy at `root`. */
function remove(root: string, sources: Sources, gone: readonly string[]): void {
  for (const name of gone) rmSync(join(root, "src/features", name), { recursive: true })
  for (const [file, text] of sources) {
    const isItsTest =
      /\.test\.tsx?$/.test(file) &&
      text.split("\n").some((line) => importsOf(file, line).some((path) => isOf(path, gone)))
    if (isOf(file, gone) || isItsTest) rmSync(join(root, file), { force: true })
    else if (REGISTRIES.test(file)) writeFileSync(join(root, file), withoutLines(file, text, gone))
  }
}

const BIN = join(ROOT, "node_modules")
const PAGE = "src/features/web/page"
const PAGE_TYPES = "tsconfig.page.json"
const LINT: readonly (readonly string[])[] = [
  ["typescript/bin/tsc", "-p", "tsconfig.probe.json", "--incremental", "false"],
  ["typescript/bin/tsc", "-p", PAGE_TYPES, "--incremental", "false"],
  [".bin/knip", "--include", "files,exports,types", "--production"],
]
const BUILD: readonly (readonly string[])[] = [
  [".bin/tsdown", "--config", "config/tsdown.config.ts", "--logLevel", "warn"],
  [".bin/vitest", "run", "--project", "unit", ...CORE_TESTS.flatMap((glob) => glob.split("*")[0] ?? [])],
]

/** What the first command that fails says of the copy. The page's code has types of its own, those of a browser. */
function problemsIn(root: string, commands: readonly (readonly string[])[]): readonly string[] {
  const page = { extends: `./${PAGE}/tsconfig.json`, include: [PAGE, "src/features/index.ts"] }
  writeFileSync(join(root, "tsconfig.probe.json"), JSON.stringify({ extends: "./tsconfig.json", include: ["src"] }))
  writeFileSync(join(root, PAGE_TYPES), JSON.stringify(page))
  for (const [name = "", ...args] of commands) {
    if (args.includes(PAGE_TYPES) && !existsSync(join(root, PAGE))) continue
    const { status, stdout, stderr } = spawnSync(join(BIN, name), args, { cwd: root, encoding: "utf8" })
    if (status !== 0) return [`${name}:`, ...`${stdout}${stderr}`.trim().split("\n")]
  }
  return []
}

/** Problems of a copy without these features. */
function problemsWithout(gone: readonly string[], sources: Sources, commands: typeof LINT): readonly string[] {
  const copy = mkdtempSync(join(tmpdir(), "superagents-probe-"))
  const listed = ["ls-files", "-co", "--exclude-standard"]
  try {
    for (const file of execFileSync("git", listed, { cwd: ROOT, encoding: "utf8" }).split("\n"))
      if (file && file !== "node_modules" && existsSync(join(ROOT, file))) cpSync(join(ROOT, file), join(copy, file))
    symlinkSync(BIN, join(copy, "node_modules"))
    remove(copy, sources, gone)
    return problemsIn(copy, commands)
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
}

const asked = process.argv.slice(2)
const sources = readAll(ROOT)
const hasFailed = (asked.length > 0 ? asked : FEATURES.map(({ name }) => name)).map((name) => {
  const gone = goneWith(name)
  const named = namedIn(sources, gone)
  const problems = asked.length > 0 ? [...named, ...problemsWithout(gone, sources, [...LINT, ...BUILD])] : named
  const ends = asked.length > 0 || PASS.includes(name) ? "passes" : "no import names it"
  console.log(problems.length === 0 ? `${name}: ${ends}` : `${name}: ${problems.length} lines name it`)
  for (const line of problems) console.log(`  ${line}`)
  return problems.length > 0 && (asked.length > 0 || PASS.includes(name))
})
const together = asked.length > 0 ? [] : problemsWithout([...new Set(PASS.flatMap(goneWith))], sources, LINT)
for (const line of together) console.log(line)
if (hasFailed.includes(true) || together.length > 0) process.exitCode = 1
