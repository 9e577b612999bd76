import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, test } from "vitest"
import type { Feature } from "../../../src/core/feature.ts"
import { isActive } from "../../../src/core/task.ts"
import { renderOutput } from "../../../src/present/output.ts"
import { Rig } from "../../support/rig.ts"

const SCHEMA = { type: "object", properties: { verdict: { enum: ["pass", "fail"] } }, required: ["verdict"] }
const VALID = '{"verdict":"pass"}'

/** A task with a schema whose agent gives these answers, one after the other. */
const withAnswersOf = async (answers: readonly string[], more: object = {}) => {
  const rig = new Rig()
  const asked: string[] = []
  rig.script(({ lastUser, sessionID }) => {
    if (sessionID === rig.parent) return undefined
    asked.push(lastUser)
    return { text: answers[asked.length - 1] ?? answers.at(-1) ?? "" }
  })
  const { id } = await rig.launch({ schema: SCHEMA, ...more })
  return { rig, id, asked, task: await rig.ended(id) }
}

/** A feature that asks for another answer so many times. */
const picky = (refusals: number): Feature => {
  let left = refusals
  return {
    name: "picky",
    verifies: () => true,
    body: () => ({
      verify: async () =>
        left-- <= 0
          ? { ok: true, finding: {} }
          : {
              ok: false,
              finding: {},
              again: true,
              ask: { kind: "check", text: "NOT YET" },
              failure: { code: "check", text: "" },
            },
    }),
  }
}

describe("a task with a schema", () => {
  test("a task with a schema is given it in the prompt and completes with a valid answer", async () => {
    const { asked, task, rig } = await withAnswersOf([VALID])
    expect(asked).toEqual([
      `FIND\n\nYour last message is read by a program: JSON alone, valid against this JSON Schema, with nothing before or after it.\n${JSON.stringify(SCHEMA)}`,
    ])
    expect(task).toMatchObject({ status: "completed", outcome: { value: { valid: true, asked: 1 } } })
    expect(rig.notices()[0]?.hidden).toContain(`Schema: valid; the value is also in ${rig.valueFile(task.id)}\n`)
  })

  test("a task with a schema shows only its value, wherever that stands in the answer", async () => {
    const { rig, id } = await withAnswersOf([`Here it is:\n\`\`\`json\n${VALID}\n\`\`\`\nDone.`])
    expect((await rig.output(id, rig.caller, 0)).answer).toBe(VALID)
    expect(rig.notices()[0]?.hidden).toContain(`<task_output>\n${VALID}\n</task_output>`)
    expect(rig.notices()[0]?.hidden).not.toContain("Here it is")
  })

  test("a task with a schema shows only its value where its process died before it recorded the end", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: `Here it is: ${VALID}` })
    const { id, sessionID } = await rig.launch({ schema: SCHEMA })
    let isDead = false
    rig.opencode.onCall = (method, session) => {
      if (method !== "saveRecord" || session !== sessionID || isActive(rig.task(id))) return undefined
      isDead = true
      return "crash"
    }
    await rig.clock.until(() => isDead)
    rig.restart()
    await rig.manager.recover()
    expect(await rig.ended(id)).toMatchObject({ status: "completed", outcome: { value: { valid: true } } })
    expect((await rig.output(id)).answer).toBe(VALID)
    expect(rig.notices()[0]?.hidden).toContain(`<task_output>\n${VALID}\n</task_output>`)
  })

  test("a conversation in the task's session after its end changes neither its answer nor its value", async () => {
    for (const [text, more] of [
      [`Here it is: ${VALID}`, { schema: SCHEMA }],
      ["FOUND", {}],
    ] as const) {
      const rig = new Rig({ options: { resultCacheTTL: 0, notifyAnswerChars: 0 } })
      rig.onPrompt("FIND", { text })
      rig.onPrompt("THANKS", { text: "You are welcome. Is there anything else?" })
      const { id, sessionID } = await rig.launch(more)
      await rig.ended(id)
      rig.opencode.say(sessionID, "THANKS", { agent: "general" })
      await rig.clock.advance(5000)
      expect(rig.answers(sessionID)).toHaveLength(2)
      expect((await rig.output(id)).answer).toBe("schema" in more ? VALID : text)
    }
  })

  test("a task with an invalid answer is asked again with the wrong places, not the schema or value", async () => {
    const { asked, task, rig } = await withAnswersOf(['{"verdict":"secret"}', VALID])
    expect(asked[1]).toMatch(/^Automatic message, not written by the user\. Your answer is not valid: at \/verdict: /)
    expect(asked[1]).toMatch(/ Answer again, with the JSON alone\.$/)
    expect(asked[1]).not.toContain("secret")
    expect(task).toMatchObject({ status: "completed", outcome: { value: { valid: true, asked: 2 } } })
    expect(rig.notices()[0]?.hidden).toContain("Schema: valid, asked 2 times; the value")
  })

  test("a value much shorter than the refused answer before it is reported as a possible placeholder", async () => {
    const long = JSON.stringify({ verdict: "maybe", notes: "x".repeat(3000) })
    const { rig, id, task } = await withAnswersOf([long, "no", VALID])
    expect(task.outcome?.value).toMatchObject({ asked: 3, length: VALID.length, refused: long.length })
    const note = `Note: the value has ${VALID.length} characters, an answer that was refused before it 3,0`
    expect(rig.notices()[0]?.hidden).toMatch(/Schema: valid, asked 3 times; /)
    expect(rig.notices()[0]?.hidden).toContain(note)
    expect(renderOutput(await rig.output(id), 0).output).toContain(note)
  })

  test("a task with a schema names the file of its value before and after its end", async () => {
    const { rig, id } = await withAnswersOf([VALID])
    const file = rig.valueFile(id)
    expect(await rig.manager.resultsOf(rig.task(id))).toBe(file)
    expect(await rig.manager.resultsOf(await rig.launch())).toBeUndefined()
    expect(rig.notices()[0]?.hidden).toContain(`the value is also in ${file}\n`)
    expect(renderOutput(await rig.output(id), 0).output).toContain(file)
  })

  test("a task with a schema fails after the allowed number of requests, and keeps its text", async () => {
    const { asked, task, rig, id } = await withAnswersOf(["All is well."])
    expect(asked).toHaveLength(3)
    expect(task).toMatchObject({
      status: "error",
      outcome: {
        reason: {
          code: "schema",
          text: "Its answer did not match the schema (asked 3 times; the last time: it holds no JSON).",
        },
        value: { valid: false, asked: 3 },
      },
    })
    expect(rig.notices()).toHaveLength(1)
    expect(rig.notices()[0]?.hidden).toContain("Schema: not valid, asked 3 times")
    expect((await rig.output(id, rig.caller, 0)).answer).toBe("All is well.")
  })

  test("answers that another verifier refuses take no attempt from those for a valid answer", async () => {
    const rig = new Rig({ features: [picky(2)] })
    const answers = [VALID, VALID, "no", VALID]
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { text: answers.shift() ?? "" }))
    const { id } = await rig.launch({ schema: SCHEMA })
    expect(await rig.ended(id)).toMatchObject({ status: "completed", outcome: { value: { valid: true, asked: 2 } } })
  })

  test("a text after a valid answer that another verifier refuses is neither cut nor called valid", async () => {
    const rig = new Rig({ features: [picky(1)] })
    const later = "It fails because of X; src/b.ts is left to change."
    rig.onPrompt("FIND", { text: VALID })
    rig.onPrompt("NOT YET", { hang: true, text: later })
    const { id } = await rig.launch({ schema: SCHEMA, timeout: 60_000 })
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "timeout" }, value: { valid: false } } })
    expect((await rig.output(id)).answer).toBe(later)
    expect(rig.notices()[0]?.hidden).toContain("Schema: not valid")
  })

  test("a task that is cancelled while it is asked for a valid answer ends as cancelled", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: "no" })
    rig.onPrompt("Your answer is not valid", { hang: true })
    const { id } = await rig.launch({ schema: SCHEMA })
    await rig.clock.until(() => rig.opencode.stored(rig.task(id).sessionID).messages.length > 2)
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    expect((await rig.ended(id)).status).toBe("cancelled")
  })

  test("a task with a schema passes its value on to the tasks that wait for it", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { text: `Well: ${VALID}` })
    const prompts: string[] = []
    rig.script(({ lastUser }) => {
      if (!lastUser.includes("SUM UP")) return undefined
      prompts.push(lastUser)
      return { text: "ok" }
    })
    const { id } = await rig.launch({ schema: SCHEMA })
    const next = await rig.launch({ prompt: "SUM UP", after: [id] })
    await rig.ended(next.id)
    expect(prompts[0]).toContain(`\n${VALID}\n`)
    expect(prompts[0]).not.toContain("Well:")
  })

  test("a task with an invalid schema is not launched", async () => {
    const rig = new Rig()
    const wrong = { properties: { x: { type: "strng" } } }
    await expect(rig.launch({ schema: wrong })).rejects.toThrow(
      /^Argument `schema`: at \/properties\/x\/type: "strng" is no type\. .* Nothing was launched\.$/,
    )
    expect(rig.manager.list(rig.parent)).toEqual([])
  })

  test("a schema file may have bounds of 64 bits, which no program represents exactly", async () => {
    const rig = new Rig()
    const folder = mkdtempSync(join(tmpdir(), "superagents-schema-"))
    rig.opencode.folderOf = () => folder
    try {
      writeFileSync(join(folder, "bounds.json"), '{"type": "integer", "maximum": 9223372036854775807}')
      await expect(rig.launch({ schema: "bounds.json" })).resolves.toMatchObject({ status: "running" })
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })

  test("a task is not launched when its schema file is unreadable or forbidden to the caller", async () => {
    const rig = new Rig()
    const folder = mkdtempSync(join(tmpdir(), "superagents-schema-"))
    rig.opencode.folderOf = () => folder
    rig.onPrompt("FIND", { text: VALID })
    try {
      execFileSync("mkfifo", [join(folder, "pipe.json")])
      mkdirSync(join(folder, "folder.json"))
      writeFileSync(join(folder, "huge.json"), "")
      truncateSync(join(folder, "huge.json"), 2_000_000_000)
      for (const [schema, why] of [
        ["pipe.json", "pipe.json is no file"],
        ["folder.json", "folder.json is no file"],
        ["huge.json", "huge.json has 2,000,000,000 bytes; at most 200,000 are read"],
      ])
        await expect(rig.launch({ schema })).rejects.toThrow(`Argument \`schema\`: ${why}. Nothing was launched.`)
      writeFileSync(join(folder, "good.json"), JSON.stringify(SCHEMA))
      const { id } = await rig.launch({ schema: join(folder, "good.json") })
      expect(rig.manager.list(rig.parent)).toHaveLength(1)
      const asked: unknown[] = []
      const permit = async (what: unknown) => {
        asked.push(what)
        if (JSON.stringify(what).includes('"read"')) throw new Error("The user rejected it.")
      }
      const caller = { ...rig.caller, permit }
      const request = { description: "find it", prompt: "FIND", agent: "general", fork: false, schema: "good.json" }
      const why = "Reading good.json was not allowed: The user rejected it. Nothing was launched."
      await expect(rig.manager.launch(request, caller)).rejects.toThrow(why)
      expect(asked).toContainEqual({ kind: "read", file: "good.json" })
      await rig.ended(id)
      await expect(rig.manager.resume(id, { prompt: "Again", schema: "good.json" }, caller)).rejects.toThrow(why)
      expect(rig.manager.list(rig.parent)).toHaveLength(1)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  test("a resumed task has a schema only when the resume names one", async () => {
    const { rig, id } = await withAnswersOf([VALID, "plain", VALID])
    await rig.manager.resume(id, { prompt: "And now?" }, rig.caller)
    expect(await rig.ended(id)).toMatchObject({ status: "completed" })
    expect(rig.task(id).outcome?.value).toBeUndefined()
    await rig.manager.resume(id, { prompt: "Once more", schema: SCHEMA }, rig.caller)
    expect(await rig.ended(id)).toMatchObject({ status: "completed", outcome: { value: { valid: true } } })
  })
})
