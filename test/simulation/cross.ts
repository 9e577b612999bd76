import { beforeAll, expect, test } from "vitest"
import type { OpencodeApi } from "../../src/core/ports.ts"
import { type Crossing, cross, kindOf, lingerOf, type Survey, survey } from "./crossings.ts"

const TIMEOUT_MS = 600_000

type Awaited = {
  [Name in keyof OpencodeApi]: OpencodeApi[Name] extends (...args: never[]) => Promise<unknown> ? Name : never
}[keyof OpencodeApi]

/** What the engine asks of an OpenCode and awaits. One that is missing here does not compile; one that no scenario calls fails. */
const METHODS: Readonly<Record<Awaited, string>> = {
  createSession: "createSession",
  deleteSession: "deleteSession",
  session: "session",
  // The fake OpenCode asks for it as for any session.
  parent: "session",
  prompt: "prompt",
  move: "move",
  deleteMessage: "deleteMessage",
  abort: "abort",
  activity: "activity",
  messagesSince: "messagesSince",
  lastMessage: "lastMessage",
  isAnsweredElsewhere: "isAnsweredElsewhere",
  hasMessage: "hasMessage",
  persona: "persona",
  caller: "caller",
  openTodos: "openTodos",
  agents: "agents",
  models: "models",
  refuse: "refuse",
  openAsks: "openAsks",
  saveRecord: "saveRecord",
  clearRequest: "clearRequest",
  recordsSince: "recordsSince",
  recordsOf: "recordsOf",
}

/** What a file of tests takes of the crossings: those at every second call, or at each; of so many kinds one. */
type Share = { readonly calls: "even" | "odd" | "each"; readonly oneOf: number }

/** Every second kind in the long part of the tests; `npm run test:crossings` takes all. */
export const ONE_OF = Number(process.env.SUPERAGENTS_CROSSINGS_ONE_OF ?? 2)

export function crossingTests({ calls, oneOf }: Share): void {
  let surveyed: Survey
  beforeAll(async () => {
    surveyed = await survey()
  }, TIMEOUT_MS)

  test("every call that the engine awaits occurs in some scenario", () => {
    const missing = Object.values(METHODS).filter((method) => !surveyed.methods.has(method))
    expect(missing).toEqual([])
  })

  test("no invariant is broken by any event that can happen during any call", { timeout: TIMEOUT_MS }, async () => {
    const { crossings } = surveyed
    const sites = [...new Set(crossings.map(({ site }) => site))]
    const mine = crossings.filter(
      ({ site }) => calls === "each" || sites.indexOf(site) % 2 === (calls === "even" ? 0 : 1),
    )
    const kinds = new Map<string, Crossing[]>()
    for (const crossing of mine) kinds.set(kindOf(crossing), [...(kinds.get(kindOf(crossing)) ?? []), crossing])
    const untaken: string[] = []
    for (const [index, [kind, all]] of [...kinds].entries()) {
      if (index % oneOf !== 0) continue
      if (!(await takenOf(all, index, oneOf > 1))) untaken.push(kind)
    }
    expect(untaken).toEqual([])
  })
}

/** Lives these crossings of one kind, or as many as it takes until one is taken; whether one was. */
async function takenOf(crossings: readonly Crossing[], index: number, oneIsEnough: boolean): Promise<boolean> {
  let isTaken = false
  for (const [at, crossing] of crossings.entries()) {
    isTaken = (await cross(crossing, lingerOf(index + at))) || isTaken
    if (isTaken && oneIsEnough) break
  }
  return isTaken
}
