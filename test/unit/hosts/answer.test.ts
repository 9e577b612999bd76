import { expect, test } from "vitest"
import { classify } from "../../../src/core/outcome.ts"
import type { Message, OpencodeApi, Prompt } from "../../../src/core/ports.ts"
import { NoContact } from "../../../src/features/hosts/connection.ts"
import type { Hosts } from "../../../src/features/hosts/hosts.ts"
import { RemoteApi } from "../../../src/features/hosts/remote-host.ts"
import { movedID, type RemoteSession } from "../../../src/features/hosts/remote-session.ts"

/** What an agent on another machine has answered is kept here before anybody is told that it has. */

const SINCE = "msg_000000000000abcdefghP00001"
const question: Message = { id: SINCE, role: "user", createdAt: 1, summary: false, parts: [] }
const said = (finish: Message["finish"]): Message => ({
  id: "msg_000000000002xyz",
  role: "assistant",
  createdAt: 2,
  completedAt: 3,
  parentID: SINCE,
  finish,
  summary: false,
  parts: [{ type: "text", text: "THE ANSWER" }] as never,
})

/** A host here that stores what it is told to, and a machine that has these messages while it is in contact. */
const start = (there: readonly Message[], session: Message[] = [question], skew = 0, isListed = true) => {
  const remote: RemoteSession = {
    ...{ taskID: "bg_1", sessionID: "ses_1", host: "big", parentFolder: "/p", title: "t", agent: "a" },
    ...{ model: undefined, live: true, sent: true, promptSent: true, asks: [], abortPending: false },
    location: { folder: "/far", session: { id: "ses_far", skew } },
  }
  let answers = () => {}
  let waits = 0
  const link = {
    contact: { skew, server: { id: "server" } } as object | undefined,
    reach: { phase: "contact" },
    use: () => {},
    reached: () => {
      // A loop that waits for nothing else would hold up this whole process.
      if (++waits > 20) throw new Error("it was asked again and again")
      return new Promise<void>((resolve, reject) => {
        answers = () => {
          if (link.contact) resolve()
          else if (link.reach.phase === "idle") reject(new NoContact("it was stopped"))
        }
        answers()
      })
    },
  }
  const local = {
    activity: async () => new Map(),
    messageID: () => "msg_000000000003abcdefghA00001",
    messagesSince: async () => session,
    lastMessage: async () => session.at(-1),
    async prompt({ messageID, parts }: Prompt) {
      const text = parts.map((part) => ({ type: "text", ...part }))
      session.push({ id: messageID, role: "user", createdAt: 4, summary: false, parts: text as never })
    },
  } as unknown as OpencodeApi
  let looks = 0
  const folder = async () => {
    looks++
    return { activity: new Map(), asks: [] }
  }
  const messagesSince = async (_sessionID: string, messageID: string) => {
    if (!link.contact) throw new NoContact("cut")
    const at = there.findIndex(({ id }) => id === messageID)
    return at < 0 ? [] : there.slice(at)
  }
  const abort = async () => {
    if (!link.contact) throw new NoContact("cut")
  }
  const prompts: Prompt[] = []
  const prompt = async (each: Prompt) => void prompts.push(each)
  const lastMessage: OpencodeApi["lastMessage"] = async (_sessionID, isWanted = () => true) => there.findLast(isWanted)
  const hosts = {
    remote: () => remote,
    live: () => [remote],
    findAgain: async (found: RemoteSession) => {
      await new Promise(setImmediate)
      if (isListed) found.location = { folder: "/far", session: { id: "ses_far", skew } }
    },
    machine: () => ({ link, server: { messagesSince, lastMessage, folder, prompt, abort } }),
  } as unknown as Hosts
  const reach = () => {
    link.contact = { skew, server: { id: "server" } }
    answers()
  }
  const close = () => {
    link.contact = undefined
    link.reach = { phase: "idle" }
    answers()
  }
  return { opencode: RemoteApi.over(local, hosts), remote, link, session, looks: () => looks, reach, close, prompts }
}

const textsOf = (messages: readonly Message[]) =>
  messages.flatMap(({ role, parts }) => parts.map((part) => `${role}: ${"text" in part ? part.text : ""}`))

test("an answer from another machine is stored once when it is read, and later available without contact", async () => {
  const { opencode, session } = start([question, said("done")])
  await opencode.messagesSince("ses_1", SINCE)
  expect(textsOf(session)).toEqual(["user: THE ANSWER"])
  await opencode.messagesSince("ses_1", SINCE)
  expect(session).toHaveLength(2)
  const next = start([], session)
  next.link.contact = undefined
  expect(textsOf(await next.opencode.messagesSince("ses_1", SINCE))).toEqual(["assistant: THE ANSWER"])
  next.remote.location = undefined
  expect(textsOf(await next.opencode.messagesSince("ses_1", SINCE))).toEqual(["assistant: THE ANSWER"])
})

test("an unfinished answer from another machine is not stored and cannot be read without contact", async () => {
  const { opencode, session, remote, link } = start([question, said("called")])
  await opencode.messagesSince("ses_1", SINCE)
  expect(session).toHaveLength(1)
  link.contact = undefined
  expect(await opencode.messagesSince("ses_1", SINCE)).toHaveLength(2)
  remote.read = undefined
  expect(await opencode.messagesSince("ses_1", SINCE)).toEqual([])
})

test("a run whose server on the host restarted during its answer is reported as stopped", async () => {
  const there: readonly Message[] = [question, { ...said(undefined), completedAt: undefined }]
  for (const [since, ending] of [
    [2, "OpenCode on big stopped while it worked."],
    [1, undefined],
    [undefined, undefined],
  ] as const) {
    const { opencode, link, remote } = start(there)
    link.contact = { skew: 0, server: { id: "new", version: "1.18.33", since } }
    expect(remote.server).toBeUndefined()
    const last = (await opencode.messagesSince("ses_1", SINCE)).at(-1)
    expect(last?.error?.message).toBe(ending)
  }
})

test("two polls at the same time share one request, unless a hint arrives in between", async () => {
  const { opencode, remote, looks } = start([question])
  await Promise.all([opencode.activity(), opencode.activity()])
  expect(looks()).toBe(1)
  // As a hint does.
  remote.look = undefined
  await opencode.activity()
  expect(looks()).toBe(2)
})

test("the last wanted message of a remote session is found behind others, with local ids and times", async () => {
  const skew = 3_600_000
  const id = movedID("msg_19a000000001abcdefghijklmn", skew)
  const better: Message = { ...question, id, createdAt: skew + 5 }
  const { opencode } = start([better, { ...said("done"), createdAt: skew + 6 }], [question], skew)
  expect(await opencode.lastMessage("ses_1")).toMatchObject({ role: "assistant", createdAt: 6 })
  const wanted = await opencode.lastMessage("ses_1", ({ role, createdAt }) => role === "user" && createdAt === 5)
  expect(wanted?.id).toBe("msg_19a000000001abcdefghijklmn")
})

test("a new prompt takes back an abort that a stop without contact has left", async () => {
  const { opencode, remote } = start([question])
  remote.abortPending = true
  void opencode.prompt({ sessionID: "ses_1", messageID: SINCE, parts: [] as never } as Prompt)
  expect(remote).toMatchObject({ live: true, abortPending: false })
})

test.each([false, true])(
  "a prompt that waits for contact is sent unless its run was stopped meanwhile: %s",
  async (stopped) => {
    const { opencode, link, reach, prompts } = start([question])
    link.contact = undefined
    const sent = opencode.prompt({ sessionID: "ses_1", messageID: SINCE, parts: [] as never } as Prompt)
    const ended = sent.catch((error: Error) => error.name)
    await new Promise(setImmediate)
    if (stopped) await opencode.abort("ses_1")
    reach()
    expect([await ended, prompts.length]).toEqual(stopped ? ["OpencodeError", 0] : [undefined, 1])
  },
)

test.each([false, true])(
  "the prompt of a run that is parked before it begins is stored here alone, although an earlier run was there: %s",
  async (isLater) => {
    const { opencode, remote, link, session, prompts } = start([], [])
    const { location } = remote
    Object.assign(remote, isLater ? { live: false } : { promptSent: false, location: undefined })
    link.contact = undefined
    link.use = () => expect.unreachable("nothing is there")
    await opencode.prompt({ sessionID: "ses_1", messageID: SINCE, parts: [], noReply: true } as never as Prompt)
    expect(session.map(({ id }) => id)).toEqual([SINCE])
    const told = { sessionID: "ses_1", messageID: "msg_000000000003abcdefghW00001", parts: [], noReply: true }
    await expect(opencode.prompt(told as never as Prompt)).rejects.toThrow("has not begun")
    // As it begins.
    Object.assign(remote, { live: true, location })
    link.contact = { skew: 0, server: { id: "server" } }
    link.use = () => {}
    await opencode.prompt({ sessionID: "ses_1", messageID: SINCE, parts: [] } as never as Prompt)
    expect(prompts.map(({ messageID }) => messageID)).toEqual([SINCE])
  },
)

test("a prompt that waits for contact is given up when the connection is closed", async () => {
  const { opencode, link, close, prompts } = start([question])
  link.contact = undefined
  const sent = opencode.prompt({ sessionID: "ses_1", messageID: SINCE, parts: [] as never } as Prompt)
  const ended = sent.catch((error: Error) => error.message)
  await new Promise(setImmediate)
  close()
  expect([await ended, prompts.length]).toEqual(["it was stopped", 0])
})

test.each([true, false])(
  "a message to an agent that an earlier process began waits until its session is found: %s",
  async (isListed) => {
    const { opencode, remote, prompts } = start([question], [question], 0, isListed)
    remote.location = undefined
    const sent = opencode.prompt({ sessionID: "ses_1", messageID: SINCE, parts: [] as never } as Prompt)
    if (isListed) await sent
    else await expect(sent).rejects.toThrow("the session of bg_1 on big was not found")
    expect(prompts.map(({ sessionID }) => sessionID)).toEqual(isListed ? ["ses_far"] : [])
  },
)

test.each<[string, boolean, Message[], string | undefined, string | undefined]>([
  ["found", true, [question], undefined, undefined],
  ["not found, and its prompt was stored", false, [question], "unreachable", undefined],
  ["not found, and its prompt was never sent", false, [], undefined, "interrupted"],
])(
  "a session that an earlier process began is searched during contact: %s",
  async (_case, isListed, session, doing, ended) => {
    const { opencode, remote } = start([question], [...session], 0, isListed)
    remote.location = undefined
    expect((await opencode.activity()).get("ses_1")?.type).toBe(doing)
    expect(remote.location !== undefined).toBe(isListed)
    const { reason } = classify(await opencode.messagesSince("ses_1", SINCE), "working") ?? {}
    expect(reason?.code).toBe(ended)
    if (ended) expect(reason?.text).toMatch(/ Launch a new task\.$/)
  },
)

const EARLIER: Message = { ...question, id: "msg_000000000000abcdefgaP00000" }
const LATER: Message = { ...question, id: "msg_000000000009abcdefghijklmn" }

test.each<[string, Message[], Message[], string | undefined]>([
  ["has no message, and none was stored here", [], [], "interrupted"],
  ["has no message, although it was stored here", [], [question], "interrupted"],
  ["has only messages of an earlier run", [EARLIER], [], "interrupted"],
  ["has a message by which its user has replaced it", [EARLIER, LATER], [], undefined],
])(
  "a run ends as interrupted before its beginning where its process died before it sent the prompt: the host %s",
  async (_case, there, session, ended) => {
    const { opencode } = start(there, session)
    const messages = await opencode.messagesSince("ses_1", SINCE)
    const { reason } = classify(messages, "working") ?? {}
    expect(reason?.code).toBe(ended)
    // It may be resumed.
    if (ended) expect(reason?.text).toMatch(/before its agent had begun on big\.$/)
    expect(messages[0]?.parts).toEqual(ended && question.parts)
  },
)

test.each([true, false])(
  "a prompt that this process sends is on its way, with contact from the start: %s",
  async (isReached) => {
    const { opencode, link, reach, remote } = start([], [])
    remote.promptSent = false
    expect(await opencode.messagesSince("ses_1", SINCE)).toEqual([])
    if (!isReached) link.contact = undefined
    const sent = opencode.prompt({ sessionID: "ses_1", messageID: SINCE, parts: [] as never } as Prompt)
    if (!isReached) {
      await new Promise(setImmediate)
      reach()
    }
    expect(await opencode.messagesSince("ses_1", SINCE)).toEqual([])
    await sent
    expect(await opencode.messagesSince("ses_1", SINCE)).toEqual([])
  },
)
