import { afterAll, beforeAll, describe, expect, test } from "vitest"
import type { SessionInfo } from "../../src/core/ports.ts"
import { NO_USAGE, type TaskDraft, type Usage } from "../../src/core/task.ts"
import { type Forked, type ForkPorts, type ForkRequest, forkContext } from "../../src/features/forks/fork.ts"
import type { PastMessage } from "../support/past.ts"
import { ALPHA, draftOf } from "./driver.ts"

/** An OpenCode to fork sessions on. The tool `bash` is there and allowed. */
export type ForkWorld = {
  readonly ports: ForkPorts
  /** A session with this past, and the ids of its messages. */
  openWithPast(past: readonly PastMessage[]): Promise<{ id: string; messageIDs: readonly string[] }>
  session(sessionID: string): Promise<(SessionInfo & { title: string; usage: Usage }) | undefined>
  metadata(sessionID: string): Promise<Record<string, unknown>>
  setMetadata(sessionID: string, metadata: Record<string, unknown>): Promise<void>
  /** Undoes the messages from this one on, as a user does. */
  undo(sessionID: string, messageID: string): Promise<void>
  /** All that is stored of a session's messages. */
  stored(sessionID: string): Promise<readonly unknown[]>
  /** What the model is shown when the session is asked `THE PROMPT`, as `role: text`, and which tools it is offered. */
  ask(sessionID: string): Promise<{ readonly said: readonly string[]; readonly tools: readonly string[] }>
  sessionIDs(): Promise<readonly string[]>
  close(): Promise<void>
}

export const LIMITS = { maxTokens: 100_000, maxToolResultChars: 1500 }

const PAST: readonly PastMessage[] = [
  { role: "user", text: "the word is tulip" },
  {
    role: "assistant",
    text: "I remember tulip",
    calls: [{ tool: "read", input: { path: "/f" }, output: "z".repeat(6000) }],
  },
  { role: "user", text: "and what else?" },
  { role: "assistant", text: "look", calls: [{ tool: "bash", input: { command: "ls" }, output: "short" }] },
  { role: "assistant", text: "calling" },
]

let made = 0
/** Each a task of its own: the preamble's id is derived from it. */
export const draftBelow = (parentID: string, parentMessageID: string, more: Partial<TaskDraft> = {}): TaskDraft => {
  const { run } = draftOf()
  const id = `bg_${String(made++).padStart(8, "0")}`
  return draftOf({ id, parentID, parentMessageID, model: ALPHA, run: { ...run, createdAt: Date.now() }, ...more })
}

/** What a fork of a session promises, in whichever way it is made. `seen` gathers what was made of each history. */
export function forkContract(name: string, make: () => Promise<ForkWorld>, seen: Map<string, unknown>): void {
  describe(`a fork ${name}`, () => {
    let world: ForkWorld
    beforeAll(async () => {
      world = await make()
    })
    afterAll(() => world?.close())

    /** Forks the history before the last message of `past`. */
    const forkOf = async (
      past: readonly PastMessage[],
      change: Partial<Omit<ForkRequest, "draft">> & { draft?: Partial<TaskDraft> } = {},
    ): Promise<Forked & { parentID: string; draft: TaskDraft }> => {
      const { id: parentID, messageIDs } = await world.openWithPast(past)
      const draft = draftBelow(parentID, String(messageIDs.at(-1)), change.draft)
      const request = { title: "the fork", rules: [], limits: LIMITS, ...change, draft }
      return { ...(await forkContext(world.ports, request)), parentID, draft }
    }

    /** What the model is shown but for the prompt, kept to be held against what other ways make of it. */
    const viewOf = async (what: string, { sessionID, info }: Forked): Promise<readonly string[]> => {
      const { said } = await world.ask(sessionID)
      expect(said.at(-1)).toBe("user: THE PROMPT")
      seen.set(`${name}: ${what}`, { said, info })
      return said.slice(0, -1)
    }

    test("a fork shows the model the earlier messages unchanged, cut results with their length, and the preamble last", async () => {
      const forked = await forkOf(PAST)
      const said = await viewOf("short", forked)
      expect(said.map((line) => line.slice(0, 40))).toEqual([
        "user: the word is tulip",
        "assistant: I remember tulip",
        `tool: ${"z".repeat(34)}`,
        "user: and what else?",
        "assistant: look",
        "tool: short",
        "user: [Forked context] You are a background ".slice(0, 40),
      ])
      expect(said[2]).toMatch(/\n\[Cut: 6000 characters originally, the first \d+ kept\.\]$/)
      expect(said[2]?.length).toBe("tool: ".length + 1500)
      expect(said.at(-1)).toContain("1 tool result over 1500 characters cut")
      expect(forked.info).toMatchObject({ messages: 4, droppedMessages: 0, cuts: [{ tool: "read", of: 6000 }] })
    })

    test("a fork has its own record and rules, no cost yet, and none of its parent's metadata", async () => {
      const rules = [{ permission: "bash", pattern: "*", action: "deny" as const }]
      const { id: parentID, messageIDs } = await world.openWithPast(PAST)
      await world.setMetadata(parentID, { theirs: 1, superagentsRequest: { id: "r", action: "cancel" } })
      const draft = draftBelow(parentID, String(messageIDs.at(-1)))
      const { sessionID, info } = await forkContext(world.ports, { draft, title: "the fork", rules, limits: LIMITS })
      const session = await world.session(sessionID)
      expect(session).toMatchObject({ title: "the fork", rules, usage: NO_USAGE })
      expect(session?.record?.task).toEqual({ ...draft, sessionID, fork: info })
      expect(Object.keys(await world.metadata(sessionID))).toEqual(["superagents"])
      expect((await world.ask(sessionID)).tools).not.toContain("bash")
      expect((await world.session(sessionID))?.usage).toMatchObject({ input: 100, output: 20 })
    })

    test("a fork by a user takes over no message that the user has undone", async () => {
      const { id: parentID, messageIDs } = await world.openWithPast(PAST)
      await world.undo(parentID, String(messageIDs[2]))
      const draft = draftBelow(parentID, "")
      const forked = await forkContext(world.ports, { draft, title: "the fork", rules: [], limits: LIMITS })
      const said = await viewOf("undone", forked)
      expect(said.map((line) => line.slice(0, 24))).toEqual([
        "user: the word is tulip",
        "assistant: I remember tulip".slice(0, 24),
        `tool: ${"z".repeat(18)}`,
        "user: [Forked context] You are".slice(0, 24),
      ])
    })

    test("making a fork does not change the parent session", async () => {
      const { id: parentID, messageIDs } = await world.openWithPast(PAST)
      const before = await world.stored(parentID)
      const draft = draftBelow(parentID, String(messageIDs.at(-1)))
      await forkContext(world.ports, { draft, title: "the fork", rules: [], limits: { ...LIMITS, maxTokens: 1000 } })
      expect(await world.stored(parentID)).toEqual(before)
    })

    test("a long fork keeps only what fits and shortens the message that began a broken turn", async () => {
      const steps = Array.from(
        { length: 12 },
        (_, step): PastMessage => ({ role: "assistant", text: `step ${step} ${"word ".repeat(200)}` }),
      )
      const question = { role: "user", text: `do it ${"long ".repeat(3000)}` } as const
      const forked = await forkOf(
        [{ role: "user", text: "old" }, { role: "assistant", text: "yes" }, question, ...steps, ...PAST.slice(-1)],
        {
          limits: { ...LIMITS, maxTokens: 2000 },
        },
      )
      const stored = await world.stored(forked.sessionID)
      const said = await viewOf("trimmed", forked)
      expect(stored).toHaveLength(forked.info.messages + 1)
      expect(forked.info.messages + forked.info.droppedMessages).toBe(15)
      expect(said[0]).toMatch(/^user: do it long.*\n\[Cut: \d+ characters originally, the first \d+ kept\.\]$/s)
      expect(said.at(-2)).toMatch(/^assistant: step 11 /)
      expect(said.at(-1)).toMatch(
        /older messages left out to stay under 2000 tokens.*The first message above was shortened.*User: old/s,
      )
    })

    test("a fork keeps the tail that OpenCode shows after a compaction in the middle of a turn", async () => {
      const past: PastMessage[] = [
        { role: "user", text: "from long ago" },
        { role: "assistant", text: "gone" },
        { role: "assistant", text: `first of the tail ${"word ".repeat(2000)}` },
        { role: "assistant", text: "second of the tail" },
        { role: "user", compacts: 2 },
        { role: "assistant", text: "THE SUMMARY" },
        { role: "user", text: "go on" },
        { role: "assistant", text: "calling" },
      ]
      const whole = await viewOf("tail", await forkOf(past))
      expect(whole.slice(0, -1).map((line) => line.slice(0, 30))).toEqual([
        "user: What did we do so far?",
        "assistant: THE SUMMARY",
        "assistant: first of the tail w",
        "assistant: second of the tail",
        "user: go on",
      ])
      const part = await viewOf("part of a tail", await forkOf(past, { limits: { ...LIMITS, maxTokens: 1500 } }))
      expect(part.slice(0, 3)).toEqual([
        "user: What did we do so far?",
        "assistant: THE SUMMARY",
        "assistant: second of the tail",
      ])
    })

    test("a fork copies what OpenCode shows of a subtask, and does not run the subtask", async () => {
      const before = (await world.sessionIDs()).length
      const forked = await forkOf([
        { role: "user", subtask: "look at it" },
        { role: "assistant", text: "calling" },
      ])
      expect((await viewOf("subtask", forked))[0]).toBe("user: The following tool was executed by the user")
      expect(await world.sessionIDs()).toHaveLength(before + 2)
    })

    test("a fork can be forked again, and a cut result keeps its original length", async () => {
      const { sessionID } = await forkOf(PAST)
      await world.ask(sessionID)
      const last = (await world.stored(sessionID)).at(-1) as { info: { id: string } }
      const draft = draftBelow(sessionID, last.info.id)
      const limits = { ...LIMITS, maxToolResultChars: 300 }
      const second = await forkContext(world.ports, { draft, title: "the second", rules: [], limits })
      const said = await viewOf("second", second)
      expect(said[2]).toMatch(/\[Cut: 6000 characters originally/)
      expect(said[2]?.length).toBeLessThanOrEqual("tool: ".length + 300)
    })

    test("a fork that cannot be made gives an error and leaves nothing behind", async () => {
      const { id: parentID } = await world.openWithPast(PAST)
      const before = await world.sessionIDs()
      const fork = (below: string, messageID: string) =>
        forkContext(world.ports, { draft: draftBelow(below, messageID), title: "none", rules: [], limits: LIMITS })
      const notFound = { name: "OpencodeError", notFound: true }
      await expect(fork(parentID, "msg_unknown")).rejects.toMatchObject(notFound)
      await expect(fork("ses_unknown", "msg_unknown")).rejects.toMatchObject(notFound)
      expect(await world.sessionIDs()).toEqual(before)
      await expect(forkOf(PAST, { draft: { agent: "nobody" } })).rejects.toMatchObject({ name: "OpencodeError" })
      expect((await world.sessionIDs()).length).toBe(before.length + 1)
    })
  })
}
