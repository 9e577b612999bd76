import type { Message, Part } from "@opencode-ai/sdk/v2"
import fc from "fast-check"
import { expect, test } from "vitest"
import { type Rewrite, rewrites } from "../../src/features/forks/opencode/copy.ts"
import { history } from "../../src/features/forks/opencode/history.ts"
import { forkEvents } from "../../src/features/forks/opencode/replay.ts"
import { trim } from "../../src/features/forks/trim.ts"
import type { StoredMessage } from "../../src/opencode/messages.ts"
import { ESTIMATE } from "../support/histories.ts"

const content = fc.nat(600).map((times) => "some words ".repeat(times))

const userPart: fc.Arbitrary<object> = fc.oneof(
  content.map((text) => ({ type: "text", text })),
  fc.constant({ type: "subtask", prompt: "look", description: "d", agent: "general" }),
  fc.constant({ type: "file", mime: "image/png", filename: "a.png", url: "data:image/png;base64,AAAA" }),
)

const answerPart: fc.Arbitrary<object> = fc.oneof(
  content.map((text) => ({ type: "text", text })),
  fc.constantFrom({ type: "step-start" }, { type: "step-finish", cost: 1 }, { type: "patch", files: [] }),
  content.map((output) => ({
    type: "tool",
    callID: "k",
    tool: "read",
    state: { status: "completed", input: { path: "/f" }, output, time: { start: 0, end: 0 } },
  })),
  content.map((error) => ({ type: "tool", callID: "k", tool: "bash", state: { status: "error", input: {}, error } })),
)

const message = fc.oneof(
  fc.record({ role: fc.constant("user"), parts: fc.array(userPart, { maxLength: 3 }) }),
  fc.record({ role: fc.constant("assistant"), parts: fc.array(answerPart, { maxLength: 4 }) }),
)

/** A session's messages; where there is room for it, one is a compaction with a summary and a tail. */
const session: fc.Arbitrary<readonly StoredMessage[]> = fc
  .tuple(fc.array(message, { maxLength: 14 }), fc.nat(14), fc.nat(14))
  .map(([messages, at, tail]) => {
    const compaction = {
      role: "user",
      parts: [{ type: "compaction", auto: true, tail_start_id: `m${Math.min(at, tail)}` }],
    }
    const summary = { role: "assistant", parts: [{ type: "text", text: "summary" }], summary: true }
    const all =
      at < messages.length - 1 ? [...messages.slice(0, at), compaction, summary, ...messages.slice(at)] : messages
    return all.map((each, index) => stored(each, index, `m${index}`))
  })

const stored = (
  each: { role: string; parts: readonly object[]; summary?: boolean },
  index: number,
  id: string,
): StoredMessage => {
  const { role, parts, summary } = each
  const info = {
    id,
    sessionID: "s",
    role,
    time: { created: index },
    parentID: `m${index - 1}`,
    summary,
    finish: "stop",
  }
  const withIDs = parts.map((part, at) => ({ ...part, id: `${id}-${at}`, messageID: id, sessionID: "s" }))
  return { info: info as never as Message, parts: withIDs as Part[] }
}

/** As `session.fork` copies: other ids, the tail's among them. */
const copied = (messages: readonly StoredMessage[]): readonly StoredMessage[] =>
  messages.map(({ info, parts }) => ({
    info: { ...info, id: `c${info.id}`, sessionID: "c" },
    parts: parts.map((part) => ({
      ...part,
      ...(part.type === "compaction" && { tail_start_id: `c${part.tail_start_id}` }),
      id: `c${part.id}`,
      messageID: `c${info.id}`,
      sessionID: "c",
    })),
  }))

const carriedOut = (messages: readonly StoredMessage[], changes: readonly Rewrite[]): readonly StoredMessage[] => {
  let left = [...messages]
  for (const change of changes)
    if (change.type === "delete message") left = left.filter(({ info }) => info.id !== change.messageID)
    else
      left = left.map(({ info, parts }) => ({
        info,
        parts: parts.flatMap((part) => {
          if (change.type === "update part") return [part.id === change.part.id ? change.part : part]
          return part.id === change.partID ? [] : [part]
        }),
      }))
  return left
}

/** Roles and parts, with what names places in the session named by their place. */
const plain = (messages: readonly { role: string; id: string; parts: readonly Part[] }[]) =>
  messages.map(({ role, parts }) => ({
    role,
    parts: parts.map(({ id: _, messageID: _m, sessionID: _s, ...part }) =>
      part.type === "compaction"
        ? { ...part, tail_start_id: messages.findIndex(({ id }) => id === part.tail_start_id) }
        : part,
    ),
  }))

const written = (sessionID: string, kept: Parameters<typeof forkEvents>[1]) => {
  const messages: { role: string; id: string; parts: Part[] }[] = []
  for (const { type, data } of forkEvents(sessionID, kept, 1)) {
    if (type === "message.updated.1") messages.push({ ...(data.info as { role: string; id: string }), parts: [] })
    else messages.at(-1)?.parts.push(data.part as Part)
  }
  return messages
}

test("both ways to make a fork give the same content, whatever was said and kept", async () => {
  await fc.assert(
    fc.asyncProperty(session, fc.integer({ min: 200, max: 20_000 }), async (sources, maxTokens) => {
      const { kept } = await trim(history(sources), { maxToolResultChars: 500, maxTokens }, ESTIMATE)
      const changes = rewrites(sources, copied(sources), kept) ?? []
      const copy = carriedOut(copied(sources), changes).map(({ info, parts }) => ({ ...info, parts }))
      expect(plain(copy)).toEqual(plain(written("ses_1", kept)))
    }),
  )
})
