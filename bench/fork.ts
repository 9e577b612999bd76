import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { eventually } from "../test/support/drive.ts"
import { startHost } from "../test/support/host.ts"
import { startModel } from "../test/support/model.ts"
import { openWithPast, type PastMessage } from "../test/support/past.ts"
import type { Measured, Order } from "./fork-plugin.ts"
import { type Row, under } from "./support/rows.ts"
import { plainTable } from "./support/table.ts"

/** Forks against the host's bare one, carried out in the host's process; prints a table. */

const RUNS = 3
const HISTORIES = [
  { messages: 200, tokens: 80_000 },
  { messages: 1000, tokens: 500_000 },
] as const
const MOST_FOR_LONG_MS = 3000
const MOST_BLOCK_MS = 50
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
  const host = await startHost({ model, plugin: [[PLUGIN, { file }]] })
  const measure = async (order: Order): Promise<Measured> => {
    const port = await eventually(() => readFileSync(file, "utf8"))
    const response = await fetch(`http://127.0.0.1:${port}`, { method: "POST", body: JSON.stringify(order) })
    if (!response.ok) throw new Error(await response.text())
    return (await response.json()) as Measured
  }
  try {
    const rows: Row[] = []
    for (const { messages, tokens } of HISTORIES) {
      const { id: parentID, messageIDs } = await openWithPast(host, pastOf(messages, tokens))
      const order = { parentID, messageID: String(messageIDs.at(-1)) }
      const bare: Measured[] = []
      const ours: Measured[] = []
      for (let run = 0; run < RUNS; run++) {
        bare.push(await measure({ kind: "bare", ...order }))
        ours.push(await measure({ kind: "fork", ...order }))
      }
      rows.push(...rowsOf(`fork, ${messages} messages, ${tokens / 1000}k tokens`, messages > 500, bare, ours))
    }
    console.log(plainTable(rows))
  } finally {
    await host.stop()
    await model.close()
    rmSync(folder, { recursive: true, force: true })
  }
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
]

await main()
process.exit(0)
