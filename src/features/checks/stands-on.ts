import { runIn } from "../../core/receipts/command.ts"

/** Finds the files that a check depends on: whoever changes them may change the result of the check. */

const TEST_FOLDERS = ["test", "tests", "__tests__"]
/** Deepest path that is compared; commands do not name deeper ones. */
const MOST_FOLDERS = 50
const TEST_FILES = /(?:\.(?:test|spec)\.[^.]+|^test_.*\.py|_test\.go)$/
const CONFIGURATION =
  /^(?:package\.json|(?:vitest|jest)\.config\..+|pytest\.ini|pyproject\.toml|conftest\.py|Makefile|Cargo\.toml|go\.mod)$/

/** The path without its first folder, its first two, and so on. */
function endsOf(file: string): readonly string[] {
  const parts = file.split("/").slice(-MOST_FOLDERS)
  return parts.slice(1).map((_part, nth) => parts.slice(nth + 1).join("/"))
}

/**
 * Returns those of `files` (paths from the checkout's top) that a command depends on: its scripts, tests and runner
 * configuration. The command may run in any folder and names paths from there.
 */
export function filesNeededBy(command: string, files: readonly string[]): readonly string[] {
  // A command that is not a plain list of programs depends on everything it names.
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
