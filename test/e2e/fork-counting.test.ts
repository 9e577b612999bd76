import { execFileSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { countTokens } from "gpt-tokenizer/encoding/o200k_base"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { callTool, openSession, unwrap } from "../support/drive.ts"
import { type ModelRequest, type ScriptedModel, startModel } from "../support/model.ts"
import { textOf } from "../support/model-request.ts"
import type { Opencode } from "../support/opencode.ts"
import { openWithPast, type PastMessage } from "../support/past.ts"
import { launch, notified, PACKAGE, startPlugged } from "../support/plugin.ts"

const SOURCE = readFileSync(new URL("../../node_modules/typescript/lib/typescript.js", import.meta.url), "utf8")
const PATIENCE = { timeout: 40_000 }
const LAUNCHED = /Inherited: (\d+) messages?, about ([\d,]+) tokens/

let model: ScriptedModel
let folder: string
/** The package as npm installs it, unpacked with scripts off. */
let installed: string

beforeAll(async () => {
  model = await startModel()
  folder = mkdtempSync(join(tmpdir(), "superagents-package-"))
  const packed = execFileSync("npm", ["pack", "--ignore-scripts", "--pack-destination", folder], { cwd: PACKAGE })
  installed = join(folder, "node_modules", "opencode-superagents")
  execFileSync("mkdir", ["-p", installed])
  const archive = String(packed).trim().split("\n").at(-1) ?? ""
  execFileSync("tar", ["-xzf", join(folder, archive), "-C", installed, "--strip-components", "1"])
})

afterAll(async () => {
  await model?.close()
  rmSync(folder, { recursive: true, force: true })
})

/** Turns of code, of so many o200k tokens all in all. */
const pastOf = (turns: number, tokens: number): PastMessage[] => {
  const perTurn = tokens / turns
  let at = 1_000_000
  const take = (chars: number) => {
    at += chars
    return SOURCE.slice(at - chars, at)
  }
  return Array.from({ length: turns }, (_, turn): PastMessage[] => {
    const text = take(Math.floor(perTurn * 3.5))
    const left = Math.max(0, perTurn - countTokens(text))
    return [
      { role: "user", text: `question ${turn}` },
      { role: "assistant", text: `${text}\n${" word".repeat(Math.round(left))}` },
    ]
  }).flat()
}

/** What o200k makes of a request's texts, without the system prompt and the last message, the prompt. */
const countOf = (request: ModelRequest) =>
  request.messages
    .filter(({ role }) => role !== "system")
    .slice(0, -1)
    .reduce((sum, { content }) => sum + countTokens(textOf(content)), 0)

const forkOf = async (opencode: Opencode, past: readonly PastMessage[]) => {
  const { id } = await openWithPast(opencode, past)
  const { child, output } = await launch(opencode, model, id, { prompt: "LOOK", fork: true })
  const request = await model.waitFor(({ sessionID }) => sessionID === child, PATIENCE)
  const [, messages, tokens = ""] = LAUNCHED.exec(output) ?? []
  await notified(opencode, id)
  return { messages: Number(messages), tokens: Number(tokens.replaceAll(",", "")), request, output }
}

describe("token counts in an installed package", () => {
  let opencode: Opencode
  beforeAll(async () => {
    opencode = await startPlugged(model, {}, { plugin: installed })
  })
  afterAll(() => opencode?.stop())

  test("the installed package counts tokens as o200k does and keeps a history of 99,000 tokens whole", async () => {
    const { messages, tokens, request, output } = await forkOf(opencode, pastOf(20, 98_500))
    // The call that launched the fork is a turn of its own, and its question belongs to the history.
    expect(messages).toBe(41)
    expect(output).not.toContain("dropped")
    const exact = countOf(request)
    console.info(`fork: ${tokens} tokens told, ${exact} by o200k`)
    expect(exact).toBeGreaterThan(98_000)
    expect(Math.abs(tokens / exact - 1)).toBeLessThan(0.01)
  })

  test("an unbroken run of 110,000 letters in a history drops only the oldest turns from a fork", async () => {
    let state = 7
    const letters = Array.from({ length: 110_000 }, () => {
      state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
      return String.fromCharCode(97 + (Math.floor(state / 65_536) % 26))
    }).join("")
    const past = [
      ...pastOf(9, 45_000),
      { role: "user", text: letters } as const,
      { role: "assistant", text: "yes" } as const,
    ]
    const { messages, tokens, request } = await forkOf(opencode, past)
    expect(messages).toBeGreaterThanOrEqual(17)
    expect(tokens).toBeLessThanOrEqual(100_000)
    expect(request.userTexts).toContain(letters)
    expect(Math.abs(tokens / countOf(request) - 1)).toBeLessThan(0.01)
  })

  test("a fork's request holds three agents' answers whole, and the launch names what was cut", async () => {
    const session = await openSession(opencode)
    const answers = ["A", "B", "C"].map(
      (name, index) => `REPORT ${name} ${`${name.toLowerCase()} `.repeat(3000 + index * 2500)}END ${name}`,
    )
    model.use(({ lastUser }) => {
      const index = ["tell A", "tell B", "tell C"].indexOf(lastUser)
      return index < 0 ? undefined : { text: answers[index] as string }
    })
    for (const name of ["A", "B", "C"]) {
      const { id } = await launch(opencode, model, session, { prompt: `tell ${name}` })
      await callTool(opencode, model, session, "superagents_output", { task_id: id, block: true })
    }
    await callTool(opencode, model, session, "bash", { command: "seq 1 2000", description: "count" })
    const { child, output } = await launch(opencode, model, session, { prompt: "WRITE IT UP", fork: true })
    const request = await model.waitFor(({ sessionID }) => sessionID === child)
    const results = request.messages.filter(({ role }) => role === "tool").map(({ content }) => textOf(content))
    for (const answer of answers) expect(results.some((result) => result.includes(answer))).toBe(true)
    expect(output).toMatch(
      /1 tool result cut\nCut, with the characters that are left:\n- bash \{"command":"seq 1 2000".*: 1,4\d\d of \d,\d{3}$/m,
    )
    const preamble = request.userTexts.find((text) => text.startsWith("[Forked context]"))
    expect(preamble).toContain("Task ids (bg_…) in the messages above are those of the session that started you")
    expect(preamble).toContain("Do not run a command again only to see its output")
  })
})

describe("forks without a counting thread", () => {
  test("a fork is made with estimated token counts when no thread can start, and OpenCode stays alive", async () => {
    rmSync(join(installed, "dist", "tokenizer.js"))
    const opencode = await startPlugged(model, {}, { plugin: installed })
    try {
      const { messages, tokens, request } = await forkOf(opencode, pastOf(20, 98_500))
      expect(messages).toBeLessThan(41)
      expect(messages).toBeGreaterThan(25)
      expect(tokens).toBeLessThanOrEqual(100_000)
      expect(countOf(request)).toBeLessThan(tokens)
      expect((await unwrap(opencode.client.session.list({ limit: 10 }))).length).toBeGreaterThan(0)
    } finally {
      await opencode.stop()
    }
  })
})
