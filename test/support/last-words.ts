import { expect } from "vitest"
import { callTool, eventually, openSession, toolParts, unwrap } from "./drive.ts"
import type { ModelRequest, Reply, ScriptedModel, Usage } from "./model.ts"
import type { Opencode } from "./opencode.ts"
import { gate, launch, notified, type TaskArguments } from "./plugin.ts"

/** Near a limit: what an agent is asked, and five of them that share one. */

/** What OpenCode asks for with these rules: `ls` and nothing else. */
export const ASKS_FOR_LS = { "*": "allow", bash: { "*": "allow", "ls*": "ask" } } as const

export const isAsked = ({ messages }: ModelRequest): boolean =>
  JSON.stringify(messages).includes("Answer at once: what is done")

const PATIENT = { timeout: 120_000 }
/** So little that it counts for nothing. */
const TINY: Usage = { input: 1, output: 0 }
const SAID = "half is done, the rest is in a.txt"

const obeys: Reply = { text: SAID, usage: TINY }
const reads = (more: object): Reply => ({ tools: [{ name: "read", args: { filePath: "README.md" } }], ...more })
const runs = (command: string): Reply => ({
  tools: [{ name: "bash", args: { command, description: "x" } }],
  usage: TINY,
})

type Agent = { work: Reply; word: Reply; fork?: boolean }

/** All but the one that spends; that one obeys. */
const OTHERS = {
  forked: { work: reads({ usage: TINY, delay: 200 }), word: obeys, fork: true },
  goesOn: { work: reads({ usage: TINY, delay: 200 }), word: reads({ text: "not yet", usage: TINY, delay: 200 }) },
  hangs: { work: runs("sleep 30"), word: obeys },
  asks: { work: runs("ls"), word: obeys },
} satisfies Record<string, Agent>

/**
 * Five agents of a new session, of which one spends `step` again and again until all are asked for their last word:
 * each ends once and is told once, by the limit that `limit` fits, and with its word where it says one.
 */
export const fiveNearALimit = async (
  opencode: Opencode,
  model: ScriptedModel,
  { step, limit }: { step: Usage; limit: RegExp },
): Promise<{ session: string; children: readonly string[] }> => {
  const session = await openSession(opencode)
  const door = gate()
  const begin = ({ work, word, fork }: Agent & { fork?: boolean }, name: string, opened?: Promise<void>) => {
    const prompt = `NEAR-${session}-${name}.`
    model.use(async (request) => {
      if (!request.userTexts.includes(prompt) || !request.parentSessionID) return undefined
      await opened
      return isAsked(request) ? word : work
    })
    const task: TaskArguments = { prompt, ...(fork && { fork }) }
    return launch(opencode, model, session, task, PATIENT)
  }
  const spender = await begin({ work: reads({ usage: step, delay: 60 }), word: obeys }, "spends", door.opened)
  const goesOn = await begin(OTHERS.goesOn, "goesOn")
  const hangs = await begin(OTHERS.hangs, "hangs")
  const asks = await begin(OTHERS.asks, "asks")
  const forked = await begin(OTHERS.forked, "forked")
  const openAsks = async () => (await unwrap(opencode.client.permission.list())).map(({ sessionID }) => sessionID)
  await eventually(async () => (await openAsks()).includes(asks.child), PATIENT)
  const isRunning = async () =>
    (await toolParts(opencode, hangs.child)).some(({ tool, state }) => tool === "bash" && state.status === "running")
  await eventually(isRunning, PATIENT)
  door.open()

  expect(await notified(opencode, session, 5, PATIENT.timeout)).toHaveLength(5)
  const outputOf = async (id: string) =>
    (await callTool(opencode, model, session, "superagents_output", { task_id: id }, PATIENT)).output ?? ""
  const asked = (child: string) => model.requests.filter((each) => each.sessionID === child && isAsked(each))
  for (const [name, { id, child }] of Object.entries({ spender, hangs, asks, forked })) {
    const output = await outputOf(id)
    expect(output, name).toMatch(/Status: error/)
    expect(output, name).toMatch(limit)
    expect(output, name).toMatch(/[Ll]ast word, which is partial:[\s\S]*half is done/)
    expect(asked(child), name).toHaveLength(1)
  }
  expect(asked(hangs.child)[0]?.tools).toContain("bash")
  expect(await openAsks()).not.toContain(asks.child)
  const stopped = await outputOf(goesOn.id)
  expect(stopped).toMatch(limit)
  expect(stopped).not.toContain("last word, which is partial")
  expect(stopped).toContain("not yet")
  const refused = (await toolParts(opencode, goesOn.child)).filter(({ state }) => state.status === "error")
  expect(JSON.stringify(refused.map(({ state }) => state))).toContain("You are near the ")
  return { session, children: [spender, goesOn, hangs, asks, forked].map(({ child }) => child) }
}
