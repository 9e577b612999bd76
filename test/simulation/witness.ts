import type { Rig } from "../support/rig.ts"

/** A request to a model: which session asks, when, and what its last user message says. */
type Asked = { readonly sessionID: string; readonly at: number; readonly lastUser: string }

/** Keeps all requests to models that a rig's host makes from now on. */
export function witness(rig: Rig) {
  const asked: Asked[] = []
  rig.host.scripts.push(({ sessionID, lastUser }) => {
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
