import {
  type Activity,
  type AgentInfo,
  type Message,
  type OpencodeApi,
  OpencodeError,
  type Prompt,
} from "../../src/core/ports.ts"
import type { Task } from "../../src/core/task.ts"
import { messageID } from "../../src/opencode/messages.ts"
import { Outbox, type OutboxPorts } from "../../src/runtime/mailbox/outbox.ts"
import { FakeClock } from "./fake-clock.ts"
import { deliveryOf, taskOf } from "./tasks.ts"

/** The outbox alone, on an OpenCode that does what a test says. */

export const PARENT = "ses_parent"
export const BUILD: AgentInfo = { name: "build", description: "", mode: "primary" }

/** A task whose last run has ended and was not told yet. */
export const cleanup = (id: string, wake = true, more: Parameters<typeof taskOf>[0] = {}): Task =>
  taskOf({ id, status: "completed", delivery: deliveryOf({ wake }), ...more, run: { endedAt: 5000, ...more.run } })

/** A promise, and what resolves it. */
export const held = <Value = void>() => {
  let resolve = (_value: Value) => {}
  const promise = new Promise<Value>((done) => {
    resolve = done
  })
  return { promise, resolve }
}

export const GONE = new OpencodeError("Session not found", { notFound: true })

export const setUp = (more: Partial<OutboxPorts> = {}) => {
  const clock = new FakeClock()
  const timers = clock.view()
  const stop = new AbortController()
  const sent: Prompt[] = []
  const states: string[] = []
  const logs: unknown[] = []
  /** What was done in the background, and what of it failed. */
  const works: string[] = []
  const failed: string[] = []
  const world = {
    busy: false,
    reverted: false,
    deleted: false,
    parentFailures: [] as OpencodeError[],
    agent: "build",
    agents: [BUILD],
    /** Whether a message that is taken is stored, even where taking it fails. */
    stores: true,
    storesWhatFails: false,
    /** Whether what is stored can be seen. */
    shows: true,
    /** What the parent holds since the message that was to wake it, and what its reading waits for. */
    since: undefined as Partial<Message>[] | undefined,
    reading: Promise.resolve(),
    reads: 0,
    failures: [] as OpencodeError[],
    known: true,
    /** Happens while OpenCode is asked who is at work. */
    meanwhile: () => {},
    looks: 0,
    composed: 0,
    /** What the text for a task waits for. */
    composing: (_id: string): Promise<unknown> => Promise.resolve(),
    handsOver: false,
    /** Until when another process answers in the session. */
    answeredUntil: 0,
    askingElsewhere: Promise.resolve(),
    isLast: true,
    mayWake: true,
  }
  const stored = new Set<string>()
  const taken: Pick<Prompt, "messageID" | "noReply">[] = []
  /** What the parent holds since a message of the outbox, where it answers each that starts its model. */
  const answered = (id: string): Partial<Message>[] => {
    if (!stored.has(id)) return []
    const since = taken.slice(taken.findLastIndex(({ messageID }) => messageID === id))
    return since.flatMap(({ messageID, noReply }) => [
      { id: messageID, role: "user" },
      ...(noReply ? [] : [{ id: `answer_${messageID}`, role: "assistant" as const, parentID: messageID }]),
    ])
  }
  const textsOf = (id: string | undefined) =>
    sent.find(({ messageID }) => messageID === id)?.parts.map((part) => ({ type: "text", ...part })) ?? []
  const opencode = {
    persona: async () => ({ agent: world.agent }),
    agents: async () => world.agents,
    parent: async () => {
      const failure = world.parentFailures.shift()
      if (failure) throw failure
      return world.deleted ? undefined : { id: PARENT, rules: [], reverted: world.reverted }
    },
    activity: async () => {
      world.looks++
      const activity = new Map<string, Activity>(world.busy ? [[PARENT, { type: "busy" }]] : [])
      world.meanwhile()
      return activity
    },
    messageID,
    prompt: async (prompt: Prompt) => {
      sent.push(prompt)
      const failure = world.failures.shift()
      if (world.stores && (!failure || world.storesWhatFails)) stored.add(prompt.messageID)
      if (failure) throw failure
      taken.push({ messageID: prompt.messageID, noReply: prompt.noReply })
    },
    hasMessage: async (_session: string, id: string) => world.shows && stored.has(id),
    isAnsweredElsewhere: async () => {
      await world.askingElsewhere
      return timers.now() < world.answeredUntil
    },
    messagesSince: async (_session: string, id: string) => {
      world.reads++
      const { since = answered(id) } = world
      await world.reading
      return since.map((message) => ({ parts: textsOf(message.id), ...message }))
    },
    log: (...line: unknown[]) => logs.push(line),
  } as unknown as OpencodeApi
  const outbox = new Outbox({
    opencode,
    clock: timers,
    isKnown: () => world.known,
    isLast: () => world.isLast,
    gatherMs: () => 250,
    mayWake: () => world.mayWake,
    isBlocked: () => false,
    silence: async (parentID) => void states.push(`${parentID} silenced`),
    compose: async ({ id }) => {
      await world.composing(id)
      const hidden = `hidden ${id}${world.composed++ > 0 ? ` (${world.composed})` : ""}`
      return { visible: `visible ${id}`, hidden, handsOver: world.handsOver }
    },
    recordDelivery: async ({ id }, state, handedOver) =>
      void states.push(`${id} ${state}${handedOver ? " with its answer" : ""}`),
    wakeDone: ({ id }) => void states.push(`${id} woken for`),
    drained: (_parentID, woken) => void states.push(woken ? "drained, woken" : "drained"),
    run: (what, work) => {
      works.push(what)
      void work().catch((error) => failed.push(`${what}: ${error}`))
    },
    stopped: stop.signal,
    ...more,
  })
  const told = () => sent.map(({ parts, noReply }) => `${parts[0]?.text}${noReply ? " (no reply)" : ""}`)
  return { clock, timers, world, outbox, sent, told, states, logs, works, failed, stop }
}
