import { Rig } from "../support/rig.ts"

export const HANG = { hang: true, text: "so far" } as const
export const MINUTE = 60_000

/** A request to a model: which session asks, when, and what its last user message says. */
type Asked = { readonly sessionID: string; readonly at: number; readonly lastUser: string }

/** Keeps all requests to models that a rig's OpenCode makes from now on. */
export function witness(rig: Rig) {
  const asked: Asked[] = []
  rig.opencode.scripts.push(({ sessionID, lastUser }) => {
    asked.push({ sessionID, at: rig.clock.now(), lastUser })
    return undefined
  })
  return {
    /** How often a session's model was asked. */
    requests: (sessionID: string): number => asked.filter((request) => request.sessionID === sessionID).length,
    /** What it was asked, oldest first. */
    texts: (sessionID: string): readonly string[] =>
      asked.flatMap((request) => (request.sessionID === sessionID ? [request.lastUser] : [])),
  }
}

/** A parent, its agent A at work, and A's own agent B. */
export const family = async (options: object = {}) => {
  const rig = new Rig({ options: { maxDepth: 2, ...options } })
  rig.onPrompt("WORK", HANG)
  rig.onPrompt("BRIEF", { text: "B is done", delay: 200 })
  const seen = witness(rig)
  const a = await rig.launch({ description: "A", prompt: "WORK" })
  await rig.clock.advance(100)
  const b = await rig.launch({ description: "B", prompt: "BRIEF" }, a.sessionID)
  return { rig, seen, a, b }
}
