import { head } from "./text.ts"

const MOST_PATH_CHARS = 5000

/** The changes of one file, as a patch. */
export type FileDiff = {
  readonly file: string
  readonly patch: string
  readonly additions: number
  readonly deletions: number
}

/** A patch of several files, as git writes it, file by file. */
export function filesOf(patch: string): FileDiff[] {
  return patch
    .split(/^(?=diff --git )/m)
    .filter((part) => part.startsWith("diff --git "))
    .map((part) => {
      const [header = "", ...hunks] = part.split(/^@@/m)
      const lines = hunks.join("").split("\n")
      return {
        file: /^(?:\+\+\+ b\/|rename to )([^\t\n]*)/m.exec(header)?.[1] ?? nameIn(header) ?? "a file",
        patch: part,
        additions: lines.filter((line) => line.startsWith("+")).length,
        deletions: lines.filter((line) => line.startsWith("-")).length,
      }
    })
}

/** The name that stands twice in `diff --git a/… b/…`: two halves are compared, since a name may hold " b/". */
function nameIn(header: string): string | undefined {
  const names = head(header.slice("diff --git ".length), 2 * MOST_PATH_CHARS).split("\n", 1)[0] ?? ""
  const [one, other] = [names.slice(0, (names.length - 1) / 2), names.slice((names.length + 1) / 2)]
  const isTwice = one.startsWith("a/") && other === `b/${one.slice(2)}`
  return isTwice ? other.slice(2) : undefined
}
