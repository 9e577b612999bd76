import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import type { AskOptions } from "../../../src/core/ports.ts"
import type { Ask, Status } from "../../../src/core/task.ts"
import { UiMetadataWriter } from "../../../src/features/hosts/hosts.ts"
import type { RemoteSession } from "../../../src/features/hosts/remote-session.ts"
import { createActions } from "../../../src/features/terminal/actions.ts"
import { createSource } from "../../../src/features/terminal/source.ts"
import { rowOf, stateText } from "../../../src/features/terminal/view-model.ts"
import {
  decodeRequest,
  decodeUiMetadata,
  encodeRecord,
  encodeUiMetadata,
  RECORD_KEY,
  REQUEST_KEY,
  UI_METADATA_KEY,
  type UiMetadata,
} from "../../../src/runtime/record/codec.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { ownerOf, SIGNER } from "../../support/records.ts"
import { askOf, taskOf } from "../../support/tasks.ts"

/** What the screen knows of a task on another machine, and how its questions are answered there. */

const permission: AskOptions = { kind: "permission", permission: "bash", patterns: ["rm x"], always: ["rm *"] }
const question: AskOptions = {
  kind: "question",
  questions: [
    {
      question: "Which?",
      header: "Choice",
      options: [{ label: "A", description: "a" }],
      multiple: false,
      custom: true,
    },
  ],
}

describe("writes of the screen's metadata", () => {
  const remote = (more: Partial<RemoteSession> = {}): RemoteSession =>
    ({ taskID: "bg_1", sessionID: "ses_1", host: "big", live: true, asks: [], ...more }) as RemoteSession

  const start = (offered: (ask: Ask) => Promise<AskOptions | undefined> = async () => permission) => {
    const clock = new FakeClock()
    const written: (UiMetadata | undefined)[] = []
    const asked: string[] = []
    const sign = vi.fn(async (_sessionID: string, uiMetadata: UiMetadata | undefined) => void written.push(uiMetadata))
    const uiMetadata = new UiMetadataWriter({ clock, writeUiMetadata: sign, log: () => {} }, (ask) => {
      asked.push(ask.id)
      return offered(ask)
    })
    return { clock, written, asked, uiMetadata, sign }
  }

  test("a state that lasts only a moment is not written to the metadata for the screen", async () => {
    const { clock, written, uiMetadata } = start()
    const one = remote({ preparing: "connecting to big" })
    uiMetadata.show(one)
    await clock.advance(400)
    one.preparing = undefined
    uiMetadata.show(one)
    await clock.advance(1000)
    expect(written).toEqual([])
  })

  test("the metadata for the screen is written once for each change and removed at the end", async () => {
    const { clock, written, asked, uiMetadata } = start()
    const one = remote({ asks: [askOf({ id: "per_1" })] })
    for (let nth = 0; nth < 3; nth++) {
      uiMetadata.show(one)
      await clock.advance(1000)
    }
    expect(written).toEqual([{ asks: [{ ...askOf({ id: "per_1" }), offers: permission }] }])
    expect(asked).toEqual(["per_1"])
    one.lost = true
    uiMetadata.show(one)
    await clock.advance(1000)
    expect(written.at(-1)).toMatchObject({ away: "big" })
    Object.assign(one, { lost: false, asks: [], fetches: true })
    uiMetadata.show(one)
    await clock.advance(1000)
    expect(written.at(-1)).toEqual({ fetches: true, asks: [] })
    one.live = false
    uiMetadata.show(one)
    await clock.advance(1000)
    expect(written.at(-1)).toBeUndefined()
    expect(written).toHaveLength(4)
  })

  test("the metadata for the screen is written again after a failure, without questions that are gone", async () => {
    const { clock, written, uiMetadata, sign } = start(async () => undefined)
    sign.mockRejectedValueOnce(new Error("no"))
    const one = remote({ lost: true, asks: [askOf()] })
    uiMetadata.show(one)
    await clock.advance(1000)
    uiMetadata.show(one)
    await clock.advance(1000)
    expect(written).toEqual([{ away: "big", asks: [] }])
  })

  test("no metadata for the screen is written after the plugin has closed", async () => {
    const { clock, written, uiMetadata } = start()
    uiMetadata.show(remote({ lost: true }))
    uiMetadata.close()
    await clock.advance(1000)
    uiMetadata.show(remote({ lost: true }))
    uiMetadata.drop(remote())
    await clock.advance(1000)
    expect(written).toEqual([])
  })
})

describe("contents of the screen's metadata", () => {
  test("the metadata for the screen is decoded as it was encoded, without the diff of an edit", () => {
    const asks = [
      { ...askOf(), offers: { ...permission, diff: "x".repeat(10_000) } as AskOptions },
      { ...askOf({ id: "que_1", kind: "question" }), offers: question },
    ]
    const uiMetadata = encodeUiMetadata({ away: "big", preparing: "sending files to big", asks })
    expect(decodeUiMetadata({ [UI_METADATA_KEY]: JSON.parse(JSON.stringify(uiMetadata)) })).toEqual({
      away: "big",
      preparing: "sending files to big",
      asks: [{ ...askOf(), offers: permission }, asks[1]],
    })
  })

  test("the metadata for the screen is empty when there is nothing to show or it is invalid", () => {
    expect(encodeUiMetadata({ asks: [] })).toBeUndefined()
    const many = Array.from({ length: 1000 }, (_, at) => ({ ...askOf({ id: `per_${at}` }), offers: permission }))
    expect(encodeUiMetadata({ asks: many })).toBeUndefined()
    for (const given of [undefined, null, 3, {}, { asks: [{}] }, { asks: [], preparing: "\u001b[2J" }])
      expect(decodeUiMetadata({ [UI_METADATA_KEY]: given })?.asks.length).toBeUndefined()
    for (const metadata of [undefined, null, "x"]) expect(decodeUiMetadata(metadata)).toBeUndefined()
  })

  test("an answer from the screen is decoded only if it is valid", () => {
    const answer = { id: "1", action: "answer", ask: "per_1", reply: { reply: "once" } }
    expect(decodeRequest({ [REQUEST_KEY]: answer })).toEqual(answer)
    expect(decodeRequest({ [REQUEST_KEY]: { ...answer, reply: { reply: "allow all" } } })).toBeUndefined()
  })
})

describe("the screen", () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  const PARENT = "ses_parent"
  const place = { kind: "big", folder: "/p", merge: false }
  const rowWith = (uiMetadata: UiMetadata | undefined, status: Status = "running") => ({
    id: "ses_child",
    parentID: PARENT,
    metadata: {
      [RECORD_KEY]: encodeRecord(
        taskOf({ parentID: PARENT, sessionID: "ses_child", place, status }),
        ownerOf("ours"),
        SIGNER,
      ),
      ...(uiMetadata && { [UI_METADATA_KEY]: uiMetadata }),
    },
  })

  const setUp = () => {
    const listeners = new Map<string, (event: unknown) => void>()
    const session = {
      get: vi.fn(async () => ({ data: rowWith(undefined) })),
      children: vi.fn(async () => ({ data: [rowWith(undefined)] })),
      messages: vi.fn(async () => ({ data: [] })),
      status: vi.fn(async () => ({ data: {} })),
      update: vi.fn(async (_of: { metadata: Record<string, unknown> }) => ({ data: {} })),
    }
    const none = vi.fn(async () => ({ data: [] }))
    const reply = vi.fn(async () => ({ data: true }))
    const api = {
      client: {
        session,
        permission: { list: none, reply },
        question: { list: none, reply, reject: reply },
      },
      event: {
        on: (type: string, hear: (event: unknown) => void) => {
          listeners.set(type, hear)
          return () => listeners.delete(type)
        },
      },
      ui: { toast: vi.fn() },
    } as unknown as TuiPluginApi
    const emit = (uiMetadata: UiMetadata | undefined, status?: Status) =>
      listeners.get("session.updated")?.({ type: "session.updated", properties: { info: rowWith(uiMetadata, status) } })
    return { api, session, emit, reply }
  }

  test("the screen shows lost contact and open questions from the metadata, and announces each question once", async () => {
    const { api, emit } = setUp()
    const heard: string[] = []
    const source = createSource(api, { onAsk: ({ id }) => void heard.push(id) })
    await source.load(PARENT)
    const state = () => source.tasksOf(PARENT).map((each) => stateText(each, source.all(), Date.now()))
    emit({ away: "big", asks: [] })
    expect(state()).toEqual([expect.stringContaining("on big, no contact with big")])
    const asks = [{ ...askOf({ id: "per_1", sessionID: "ses_child" }), offers: permission }]
    emit({ asks })
    emit({ asks })
    expect(state()).toEqual([expect.stringContaining("waiting for permission")])
    expect(heard).toEqual(["per_1"])
    expect(source.tasksOf(PARENT)[0]?.progress?.asks).toEqual(asks)
    emit(undefined)
    expect(state()).toEqual([expect.stringContaining("working")])
  })

  test("the screen shows in /tasks and the sidebar that an ended task's work is being fetched", async () => {
    const { api, emit } = setUp()
    const source = createSource(api)
    await source.load(PARENT)
    const shown = () => {
      const [seen] = source.tasksOf(PARENT)
      return seen && [stateText(seen, [seen], Date.now()), rowOf(seen, [seen], Date.now()).detail]
    }
    emit({ fetches: true, asks: [] }, "completed")
    expect(shown()).toEqual(["general on big, completed, fetching its work", "fetching its work"])
    emit({ fetches: true, asks: [] }, "error")
    expect(shown()).toEqual(["general on big, failed, fetching its work", "fetching its work"])
    emit(undefined, "completed")
    expect(shown()).toEqual(["general on big, completed", undefined])
  })

  test("the screen answers a question on a host by a request in the metadata, not through this OpenCode", async () => {
    const { api, session, reply } = setUp()
    const actions = createActions(api)
    const requests = () => session.update.mock.calls.map(([{ metadata }]) => metadata[REQUEST_KEY])
    const far = { ...askOf({ id: "per_1", sessionID: "ses_child" }), offers: permission } as Ask
    await actions.replyTo(far, "once")
    const asked = { ...askOf({ id: "que_1", sessionID: "ses_child", kind: "question" }), offers: question } as Ask
    expect(await actions.questionsOf(asked)).toEqual((question as { questions: unknown }).questions)
    await actions.answer(asked, [["A"]])
    await actions.refuse(asked)
    expect(requests()).toEqual([
      { id: expect.any(String), action: "answer", ask: "per_1", reply: { reply: "once" } },
      { id: expect.any(String), action: "answer", ask: "que_1", reply: { answers: [["A"]] } },
      { id: expect.any(String), action: "answer", ask: "que_1", reply: { dismiss: true } },
    ])
    expect(reply).not.toHaveBeenCalled()
    await actions.replyTo(askOf(), "once")
    expect(reply).toHaveBeenCalledTimes(1)
    actions.dispose()
  })
})
