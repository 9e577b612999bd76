import { beforeAll, expect, test } from "vitest"
import type { Host } from "../../src/core/ports.ts"
import { type Crossing, cross, kindOf, lingerOf, type Survey, survey } from "./crossings.ts"

/** All of them where there is time for it; at a desk one of so many, each kind at most once. */
const SHARE = Number(process.env.CROSSINGS ?? (process.env.CI ? 1 : 16))
const TIMEOUT_MS = 600_000

type Awaited = {
  [Name in keyof Host]: Host[Name] extends (...args: never[]) => Promise<unknown> ? Name : never
}[keyof Host]

/** What the engine asks of a host and awaits. One that is missing here does not compile; one that no scenario calls fails. */
const METHODS: Readonly<Record<Awaited, string>> = {
  createSession: "createSession",
  deleteSession: "deleteSession",
  session: "session",
  // The fake host asks for it as for any session.
  parent: "session",
  prompt: "prompt",
  move: "move",
  deleteMessage: "deleteMessage",
  abort: "abort",
  activity: "activity",
  messagesSince: "messagesSince",
  lastMessage: "lastMessage",
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

/** Two files of tests share the crossings, by the calls at which they are. */
export function crossingTests(part: 0 | 1): void {
  let surveyed: Survey
  beforeAll(async () => {
    surveyed = await survey()
  }, TIMEOUT_MS)

  test("every call that the engine awaits is made in some scenario", () => {
    const missing = Object.values(METHODS).filter((method) => !surveyed.methods.has(method))
    expect(missing).toEqual([])
  })

  test("at every call under way, whatever can come: no promise is broken", { timeout: TIMEOUT_MS }, async () => {
    const { crossings } = surveyed
    const sites = [...new Set(crossings.map(({ site }) => site))]
    const mine = crossings.filter(({ site }) => sites.indexOf(site) % 2 === part)
    const kinds = new Map<string, Crossing[]>()
    for (const crossing of mine) kinds.set(kindOf(crossing), [...(kinds.get(kindOf(crossing)) ?? []), crossing])
    const untaken: string[] = []
    for (const [index, [kind, all]] of [...kinds].entries()) {
      if (index % SHARE !== 0) continue
      if (!(await takenOf(all, index))) untaken.push(kind)
    }
    expect(untaken).toEqual([])
  })
}

/** Lives these crossings of one kind; whether one of them was taken. At a desk the first that is taken is enough. */
async function takenOf(crossings: readonly Crossing[], index: number): Promise<boolean> {
  let isTaken = false
  for (const [at, crossing] of crossings.entries()) {
    isTaken = (await cross(crossing, lingerOf(index + at))) || isTaken
    if (isTaken && SHARE > 1) break
  }
  return isTaken
}
