import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { FileDiff } from "../lib/patch.ts"
import { call } from "./client.ts"

/** Session's changes since a prompt; empty where OpenCode has no snapshots of them. */
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
