import { expect, test } from "vitest"
import type { Feature } from "../../src/core/feature.ts"
import { toolsFor } from "../../src/tools/index.ts"
import { answerLength, seen } from "../support/fixtures/answer-length.ts"
import { Rig } from "../support/rig.ts"

/** The interface of features, tried with one that the plugin does not have: core and runtime know nothing of it. */

const rigged = (options: object = {}) => new Rig({ options, features: [answerLength] })
const find = { description: "find it", prompt: "FIND", agent: "general" }

test("a new feature brings an option, with its default and its rule", () => {
  expect(rigged().options.mostAnswerChars).toBe(0)
  expect(rigged({ mostAnswerChars: 9 }).options.mostAnswerChars).toBe(9)
  expect(() => rigged({ mostAnswerChars: "many" })).toThrow("mostAnswerChars")
})

test("a new feature brings an argument, says what it does not go with, and refuses a call", async () => {
  const rig = rigged()
  const tool = toolsFor(rig.manager, rig.options).superagents_task
  const call = async (more: object) => tool?.execute({ ...find, ...more }, rig.caller)
  expect(tool?.args).toHaveProperty("short")
  await expect(call({ short: true, fork: true })).rejects.toThrow("a fork answers as its parent does")
  await expect(call({ short: true, schema: { type: "object" } })).rejects.toThrow("`short` is for answers in words")
  expect(rig.manager.list(rig.parent)).toEqual([])
})

test("a new feature judges answers: the agent is asked again, and the task completes with an answer that passes", async () => {
  const rig = rigged({ mostAnswerChars: 9 })
  const before = seen.events
  rig.onPrompt("FIND", { text: "far too long an answer" })
  rig.onPrompt("Say it in 9 characters.", { text: "short" })
  const { id } = await rig.launch()
  expect(await rig.ended(id)).toMatchObject({ status: "completed" })
  expect(rig.notices()[0]?.hidden).toContain("short")
  expect(seen.events).toBeGreaterThan(before)
})

test("a new feature blocks a run until another has ended", async () => {
  const rig = rigged({ mostAnswerChars: 9 })
  rig.onPrompt("FIND", { hang: true })
  const { id } = await rig.launch()
  await rig.clock.advance(100)
  const next = await rig.launch({ prompt: "NEXT" })
  rig.onPrompt("NEXT", { text: "done" })
  await rig.clock.advance(60_000)
  expect(rig.task(next.id).run.startedAt).toBeUndefined()
  expect(rig.view(next.id).phase).toBe("waiting for answer-length")
  await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
  expect(await rig.ended(next.id)).toMatchObject({ status: "completed" })
})

test("a new feature hears an event after its run has taken it, and before that ends", async () => {
  const heard: unknown[] = []
  const listener: Feature = {
    name: "listener",
    body: ({ store }) => ({
      onEvent({ type }, task) {
        if (!task || (type !== "answered" && type !== "error")) return
        heard.push([type, task.status, store.get(task.id)?.status, store.run(task.id)?.observed.ended])
      },
    }),
  }
  const rig = new Rig({ features: [listener] })
  rig.onPrompt("FIND", { text: "found" })
  rig.onPrompt("LOSE", { status: 400, body: { error: { message: "lost" } } })
  await rig.ended((await rig.launch()).id)
  await rig.ended((await rig.launch({ prompt: "LOSE" })).id)
  expect(heard).toEqual([
    ["answered", "running", "running", 1],
    // OpenCode says it twice.
    ["answered", "running", "running", 1],
    ["error", "running", "running", 0],
  ])
})

test("without its option a new feature changes nothing", async () => {
  const rig = rigged()
  rig.onPrompt("FIND", { text: "far too long an answer" })
  const { id } = await rig.launch()
  expect(await rig.ended(id)).toMatchObject({ status: "completed" })
})
