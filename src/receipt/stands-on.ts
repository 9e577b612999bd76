/** The files that a check stands on: who changes them changes what the check says. Pure. */

const TEST_FOLDERS = ["test", "tests", "__tests__"]
const TEST_FILES = /(?:\.(?:test|spec)\.[^.]+|^test_.*\.py|_test\.go)$/
const CONFIGURATION =
  /^(?:package\.json|(?:vitest|jest)\.config\..+|pytest\.ini|pyproject\.toml|conftest\.py|Makefile|Cargo\.toml|go\.mod)$/

/**
 * Those of these files (paths from the checkout's top) that a command stands on: its own, tests, what configures their
 * runner. It may run in any folder: what it names is a path from there.
 */
export function standsOn(command: string, files: readonly string[]): readonly string[] {
  const words = new Set(command.split(/[\s"'`;&|()<>=,]+/).map((word) => word.replace(/^(?:\.{1,2}\/)+/, "")))
  const isNamed = (file: string) =>
    words.has(file) || [...words].some((word) => /[./]/.test(word) && file.endsWith(`/${word}`))
  return files.filter((file) => {
    const folders = file.split("/")
    const name = folders.pop() ?? ""
    const isTest = folders.some((folder) => TEST_FOLDERS.includes(folder)) || TEST_FILES.test(name)
    return isNamed(file) || isTest || CONFIGURATION.test(name)
  })
}
