import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { call } from "./client.ts"

/** The changes of one file, as a patch. */
export type FileDiff = {
  readonly file: string
  readonly patch: string
  readonly additions: number
  readonly deletions: number
}

/** What a session changed since a prompt of it; empty where the host takes no snapshots, or has forgotten them. */
export async function diffSince(client: OpencodeClient, sessionID: string, messageID: string): Promise<FileDiff[]> {
  try {
    const found = await call("session.diff", client.session.diff({ sessionID, messageID }))
    return found.map(({ file, patch, additions, deletions }) => ({
      file: file ?? "",
      patch: patch ?? "",
      additions,
      deletions,
    }))
  } catch {
    return []
  }
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
