import { runIn } from "./command.ts"

/** The files that a check stands on: who changes them changes what the check says. Pure. */

const TEST_FOLDERS = ["test", "tests", "__tests__"]
/** More than a command names a file by. */
const MOST_FOLDERS = 50
const TEST_FILES = /(?:\.(?:test|spec)\.[^.]+|^test_.*\.py|_test\.go)$/
const CONFIGURATION =
  /^(?:package\.json|(?:vitest|jest)\.config\..+|pytest\.ini|pyproject\.toml|conftest\.py|Makefile|Cargo\.toml|go\.mod)$/

/** A path without its first folder, without its first two, and so on. */
function endsOf(file: string): readonly string[] {
  const parts = file.split("/").slice(-MOST_FOLDERS)
  return parts.slice(1).map((_part, nth) => parts.slice(nth + 1).join("/"))
}

/**
 * Those of these files (paths from the checkout's top) that a command stands on: those that it runs, tests, what
 * configures their runner. It may run in any folder: what it names is a path from there.
 */
export function standsOn(command: string, files: readonly string[]): readonly string[] {
  // Of a command that is more than a list of programs, all that it names.
  const named = runIn(command) ?? [command]
  const all = named.flatMap((text) => text.split(/[\s"'`;&|()<>=,]+/))
  const words = new Set(all.map((word) => word.replace(/^(?:\.{1,2}\/)+/, "")))
  const isNamed = (file: string) => words.has(file) || endsOf(file).some((end) => /[./]/.test(end) && words.has(end))
  return files.filter((file) => {
    const folders = file.split("/")
    const name = folders.pop() ?? ""
    const isTest = folders.some((folder) => TEST_FOLDERS.includes(folder)) || TEST_FILES.test(name)
    return isNamed(file) || isTest || CONFIGURATION.test(name)
  })
}
