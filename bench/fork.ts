import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { eventually } from "../test/support/drive.ts"
import { startModel } from "../test/support/model.ts"
import { startOpencode } from "../test/support/opencode.ts"
import { openWithPast, type PastMessage } from "../test/support/past.ts"
import type { Measured, Order } from "./fork-plugin.ts"
import { atMostPlus, type Goal, type Row, under } from "./support/rows.ts"
import { plainTable } from "./support/table.ts"

/**
 * Forks against OpenCode's bare one, and the counting of their tokens, carried out in OpenCode's process; prints a
 * table. With `--short` once, and on the smaller history alone.
 */

const short = process.argv.includes("--short")
const RUNS = short ? 1 : 3
const HISTORIES = [
  { messages: 200, tokens: 80_000 },
  { messages: 1000, tokens: 500_000 },
].slice(0, short ? 1 : 2)
/** As many texts as a history at the limit has, and their tokens. */
const COUNTED = { texts: 100, tokens: 100_000 }
const MOST_FOR_LONG_MS = 3000
const MOST_BLOCK_MS = 50
const MOST_COUNTING_BLOCK_MS = 10
const CHARS_PER_TOKEN = 4

const PLUGIN = fileURLToPath(new URL("./fork-plugin.ts", import.meta.url))
const SOURCE = readFileSync(new URL("../node_modules/typescript/lib/typescript.js", import.meta.url), "utf8")

/** Turns as in practice: a short question, a step with a read file, an answer in prose. */
const pastOf = (messages: number, tokens: number): PastMessage[] => {
  const chars = Math.floor((tokens * CHARS_PER_TOKEN) / (messages / 2))
  let at = 1_000_000
  const take = (length: number) => {
    at += length
    return SOURCE.slice(at - length, at)
  }
  const past = Array.from({ length: messages / 2 }, (_, turn): PastMessage[] => [
    { role: "user", text: take(Math.floor(chars * 0.1)) },
    {
      role: "assistant",
      text: take(Math.floor(chars * 0.3)),
      calls: [{ tool: "read", input: { path: `/file/${turn}` }, output: take(Math.floor(chars * 0.6)) }],
      counted: Math.floor(((turn + 1) * tokens) / (messages / 2)),
    },
  ])
  return [...past.flat(), { role: "assistant", text: "calling" }]
}

const main = async () => {
  const folder = mkdtempSync(join(tmpdir(), "superagents-fork-bench-"))
  const file = join(folder, "port")
  const model = await startModel()
  const opencode = await startOpencode({ model, plugin: [[PLUGIN, { file }]] })
  const measure = async (order: Order): Promise<Measured> => {
    const port = await eventually(() => readFileSync(file, "utf8"))
    const response = await fetch(`http://127.0.0.1:${port}`, { method: "POST", body: JSON.stringify(order) })
    if (!response.ok) throw new Error(await response.text())
    return (await response.json()) as Measured
  }
  try {
    const rows: Row[] = []
    for (const { messages, tokens } of HISTORIES) {
      const { id: parentID, messageIDs } = await openWithPast(opencode, pastOf(messages, tokens))
      const order = { parentID, messageID: String(messageIDs.at(-1)) }
      const bare: Measured[] = []
      const ours: Measured[] = []
      for (let run = 0; run < RUNS; run++) {
        bare.push(await measure({ kind: "bare", ...order }))
        ours.push(await measure({ kind: "fork", ...order }))
      }
      rows.push(...rowsOf(`fork, ${messages} messages, ${tokens / 1000}k tokens`, messages > 500, bare, ours))
    }
    rows.push(...(await countingRows(measure)))
    console.log(plainTable(rows))
  } finally {
    await opencode.stop()
    await model.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Without a thread, and with the one that the time before has left. */
const countingRows = async (measure: (order: Order) => Promise<Measured>): Promise<Row[]> => {
  const chars = (COUNTED.tokens * CHARS_PER_TOKEN) / COUNTED.texts
  const texts = Array.from({ length: COUNTED.texts }, (_, at) => SOURCE.slice(at * chars, (at + 1) * chars))
  const rows: Row[] = []
  for (const state of ["no thread", "a thread"]) {
    const counted = await measure({ kind: "count", texts })
    if (!counted.tokens) throw new Error("nothing was counted")
    const idle = await measure({ kind: "idle", ms: counted.ms })
    const name = `counting ${Math.round(counted.tokens / 1000)}k tokens, ${state} before`
    const row = (figure: string, of: (measured: Measured) => number, goal?: Goal): Row => {
      return {
        case: name,
        figure,
        unit: "ms",
        against: "an idle OpenCode",
        native: [of(idle)],
        plugin: [of(counted)],
        goal,
      }
    }
    rows.push(
      row("time", ({ ms }) => ms),
      row("longest block", ({ blockMs }) => blockMs),
      row("longest block, processor time", ({ busyMs }) => busyMs, atMostPlus(MOST_COUNTING_BLOCK_MS, "ms")),
    )
  }
  return rows
}

const rowsOf = (name: string, long: boolean, bare: readonly Measured[], ours: readonly Measured[]): Row[] => [
  {
    case: name,
    figure: "time",
    unit: "ms",
    against: "bare session.fork",
    native: bare.map(({ ms }) => ms),
    plugin: ours.map(({ ms }) => ms),
    goal: long
      ? under(MOST_FOR_LONG_MS, "ms")
      : { text: "at most 2 × native + 300 ms", limit: (native) => 2 * native + 300 },
  },
  {
    case: name,
    figure: "longest block",
    unit: "ms",
    against: "bare session.fork",
    native: bare.map(({ blockMs }) => blockMs),
    plugin: ours.map(({ blockMs }) => blockMs),
    goal: under(MOST_BLOCK_MS, "ms"),
  },
  {
    case: name,
    figure: "longest block, processor time",
    unit: "ms",
    against: "bare session.fork",
    native: bare.map(({ busyMs }) => busyMs),
    plugin: ours.map(({ busyMs }) => busyMs),
  },
]

await main()
process.exit(0)
