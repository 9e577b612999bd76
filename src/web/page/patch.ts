/** A line of a patch: added, removed, unchanged, or the place of what follows. */
export type PatchLine = { readonly kind: "+" | "-" | " " | "@"; readonly text: string }

const MOST_LINES = 2000

/** The lines of a unified patch, its heads left out; and how many more there are. */
export function patchLines(patch: string): { readonly lines: readonly PatchLine[]; readonly more: number } {
  const all = patch.split("\n")
  const first = all.findIndex((line) => line.startsWith("@@"))
  const body = first < 0 ? [] : all.slice(first)
  if (body.at(-1) === "") body.pop()
  const shown = body.filter((line) => !line.startsWith("\\")).slice(0, MOST_LINES)
  return { lines: shown.map(lineOf), more: Math.max(0, body.length - MOST_LINES) }
}

function lineOf(line: string): PatchLine {
  if (line.startsWith("@@")) return { kind: "@", text: line.replace(/^@@ (.*?) @@.*$/, "$1") }
  const kind = line[0] === "+" || line[0] === "-" ? line[0] : " "
  return { kind, text: line.slice(1) }
}
