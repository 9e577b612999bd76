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
      const [, ...hunks] = part.split(/^@@/m)
      const lines = hunks.join("").split("\n")
      return {
        // Git puts a tab behind a name with blanks in it.
        file:
          /^(?:\+\+\+ b\/|rename to )(.*?)\t?$/m.exec(part)?.[1] ??
          /^diff --git a\/(.*) b\/\1$/m.exec(part)?.[1] ??
          "a file",
        patch: part,
        additions: lines.filter((line) => line.startsWith("+")).length,
        deletions: lines.filter((line) => line.startsWith("-")).length,
      }
    })
}
