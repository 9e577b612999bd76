import { setTimeout as sleep } from "node:timers/promises"
import { callTool, openSession, unwrap } from "../../test/support/drive.ts"
import { notifications } from "../../test/support/plugin.ts"
import { type Case, collector } from "../support/case.ts"
import { type Bench, native, superagents, withBenches } from "../support/contender.ts"
import { memoryMB } from "../support/proc.ts"
import { atMostTimes, none, type Row, under } from "../support/rows.ts"

const ITEMS = 1000
const AT_ONCE = 10
const PATIENCE_MS = 900_000
const LOOK_MS = 250

/** One prompt for many items, beside the bare OpenCode: so many sessions, made, prompted and idle, ten at once. */
export const eachCase: Case = async ({ short, built, progress }) => {
  const found = collector()
  const items = short ? 40 : ITEMS
  const options = { maxConcurrentTasks: AT_ONCE, each: { ask: 0 } }
  for (const contender of [native, superagents(built.folder, options)]) {
    progress(`each: ${items} items, ${contender.name}`)
    await withBenches([contender], async ([bench]) => {
      if (!bench) return
      bench.model.use(({ firstUser }) => (firstUser.includes("LOOK-AT") ? { text: "done" } : undefined))
      const since = Date.now()
      const more = contender === native ? await bare(bench, items) : await mapped(bench, items)
      found.add("wall", contender.name, (Date.now() - since) / 1000)
      found.add("peak memory", contender.name, memoryMB(bench.opencode.pid, "VmHWM"))
      for (const [figure, value] of more) found.add(figure, contender.name, value)
    })
  }
  const rows: Omit<Row, "case" | "native" | "plugin">[] = [
    { figure: "wall", unit: "s", goal: atMostTimes(3) },
    { figure: "peak memory", unit: "MB", goal: under(900, "MB") },
    { figure: "not valid", unit: "tasks", goal: none },
    { figure: "the caller's children", unit: "tasks", goal: { text: "one", limit: () => 1 } },
    { figure: "the notification", unit: "KB", goal: under(12, "KB") },
  ]
  const title = `${items} items of one task, ${AT_ONCE} at once`
  return rows.map((row) => ({ ...row, case: "each", figure: `${title}: ${row.figure}`, ...found.of(row.figure) }))
}

/** The least that such a thing can cost: no plugin. */
async function bare({ opencode }: Bench, items: number): Promise<[string, number][]> {
  const parentID = await openSession(opencode)
  let next = 0
  const lane = async () => {
    for (let nth = next++; nth < items; nth = next++) {
      const { id: sessionID } = await unwrap(opencode.client.session.create({ parentID, title: `item ${nth}` }))
      const isIdle = () =>
        opencode.events.all.some((event) => event.type === "session.idle" && event.properties.sessionID === sessionID)
      await opencode.client.session.promptAsync({ sessionID, parts: [{ type: "text", text: `LOOK-AT ${nth}` }] })
      while (!isIdle()) await sleep(20)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, lane))
  return []
}

async function mapped({ opencode, model }: Bench, items: number): Promise<[string, number][]> {
  const session = await openSession(opencode)
  const each = Array.from({ length: items }, (_none, nth) => nth)
  const args = { description: "look at all", agent: "general", prompt: "LOOK-AT {{item}}", each }
  await callTool(opencode, model, session, "superagents_task", args)
  const deadline = Date.now() + PATIENCE_MS
  let notice = (await notifications(opencode, session))[0]
  while (!notice && Date.now() < deadline) {
    await sleep(LOOK_MS)
    notice = (await notifications(opencode, session))[0]
  }
  const valid = Number(/Items: ([\d,]+) valid/.exec(notice?.hidden ?? "")?.[1]?.replaceAll(",", "") ?? 0)
  const children = await unwrap(opencode.client.session.children({ sessionID: session }))
  return [
    ["not valid", items - valid],
    ["the caller's children", children.length],
    ["the notification", (notice?.hidden.length ?? 0) / 1024],
  ]
}
