import { existsSync } from "node:fs"
import { readFile, writeFile } from "node:fs/promises"
import { answersCase } from "./cases/answers.ts"
import { boardCase } from "./cases/board.ts"
import { breakerCase } from "./cases/breaker.ts"
import { burstCase } from "./cases/burst.ts"
import { cacheCase } from "./cases/cache.ts"
import { callsCase } from "./cases/calls.ts"
import { crowdCase } from "./cases/crowd.ts"
import { eachCase } from "./cases/each.ts"
import { forkCase } from "./cases/fork.ts"
import { hostsCase } from "./cases/hosts.ts"
import { inProcessCase } from "./cases/in-process.ts"
import { launchCase } from "./cases/launch.ts"
import { silentCase } from "./cases/silent.ts"
import { startCase } from "./cases/start.ts"
import { worktreesCase } from "./cases/worktrees.ts"
import { USAGE, wantedFrom } from "./support/arguments.ts"
import { buildPlugin } from "./support/build.ts"
import type { Case } from "./support/case.ts"
import { isMet, type Row } from "./support/rows.ts"
import { markdownTable, plainTable, settingOf, settingText, withTable } from "./support/table.ts"

const CASES: Readonly<Record<string, Case>> = {
  launch: launchCase,
  burst: burstCase,
  crowd: crowdCase,
  answers: answersCase,
  silent: silentCase,
  start: startCase,
  "in-process": inProcessCase,
  calls: callsCase,
  fork: forkCase,
  worktrees: worktreesCase,
  board: boardCase,
  cache: cacheCase,
  breaker: breakerCase,
  each: eachCase,
  hosts: hostsCase,
}

const PAGE = new URL("../docs/benchmarks.md", import.meta.url)

const progress = (text: string) => {
  process.stderr.write(`${new Date().toTimeString().slice(0, 8)}  ${text}\n`)
}

/** A measurement that fails costs its own rows only. */
const measure = async (names: readonly string[], context: Omit<Parameters<Case>[0], "built">) => {
  const rows: Row[] = []
  const failures: string[] = []
  const built = await buildPlugin()
  for (const name of names)
    try {
      rows.push(...((await CASES[name]?.({ ...context, built })) ?? []))
    } catch (error) {
      failures.push(name)
      progress(`${name} failed: ${error instanceof Error ? error.stack : error}`)
    }
  return { rows, failures }
}

const main = async () => {
  const { names, runs, short, write, json, help } = wantedFrom(process.argv.slice(2), Object.keys(CASES))
  if (help) return console.log(USAGE)
  const { rows, failures } = await measure(names, { runs, short, progress })
  const setting = settingOf(runs)
  console.log(`\n${plainTable(rows)}\n\n${settingText(setting)}`)
  if (json) await writeFile(json, `${JSON.stringify({ setting, rows: rows.map(toJSON), failures }, null, 2)}\n`)
  if (failures.length > 0) throw new Error(`failed: ${failures.join(", ")}`)
  if (!write || !existsSync(PAGE)) return
  const text = `${settingText(setting)}\n\n${markdownTable(rows)}`
  await writeFile(PAGE, withTable(await readFile(PAGE, "utf8"), text))
}

const toJSON = ({ goal, ...row }: Row) => ({ ...row, goal: goal?.text, met: isMet({ goal, ...row }) })

try {
  await main()
  process.exit(0)
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exit(1)
}
