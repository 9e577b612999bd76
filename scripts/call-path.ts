import { Rig } from "../test/support/rig.ts"

const FRAME = /^\s+at (?:async )?([\w.#]+) \(.*\/src\/([^:)]+)\.tsx?:/

/**
 * Named functions that a launch, its end and its notification pass through, in order, each once: those on the stack when
 * a plain task on the fake OpenCode creates its session, sends its prompt, reads its answer and notifies its parent.
 */
export async function callPath(): Promise<readonly { readonly name: string; readonly file: string }[]> {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = 100
  const rig = new Rig()
  const found = new Map<string, string>()
  rig.opencode.onCall = (method) => {
    if (!["agents", "createSession", "prompt", "messagesSince"].includes(method)) return undefined
    const frames = (new Error().stack ?? "").split("\n").toReversed()
    for (const frame of frames) {
      const [, name = "", file = ""] = FRAME.exec(frame) ?? []
      if (name && !found.has(name)) found.set(name, file)
    }
    return undefined
  }
  const { id } = await rig.launch()
  await rig.ended(id)
  Error.stackTraceLimit = limit
  return [...found].map(([name, file]) => ({ name, file }))
}
