import type { Form } from "../../test/support/cache.ts"
import type { ModelRequest } from "../../test/support/model.ts"
import { readAnswers } from "../support/answers.ts"
import {
  launchSiblings,
  launchUncached,
  readBy,
  ride,
  startCacheBench,
  talk,
  workInThread,
} from "../support/cache-turns.ts"
import { type Case, collector } from "../support/case.ts"
import { type Bench, native, superagents, withBenches } from "../support/contender.ts"
import { atLeast, atMost, type Goal, type Row, under } from "../support/rows.ts"
import type { Unit } from "../support/stats.ts"

const FORMS: readonly Form[] = ["openai", "anthropic"]
const NAMES: Readonly<Record<Form, string>> = { openai: "OpenAI's form", anthropic: "Anthropic's form" }

/** What delegation costs with a provider's cache, played in both forms, on the real OpenCode. */
export const cacheCase: Case = async ({ runs, short, built, progress }) => {
  const rows: Row[] = []
  for (const form of FORMS) rows.push(...(await withCache(form, short ? 1 : runs, built.folder, progress)))
  return [...rows, ...(await withoutCache(short ? 1 : runs, built.folder, progress))]
}

async function withCache(form: Form, runs: number, folder: string, progress: (text: string) => void) {
  const found = collector()
  const add = (figure: string, ...values: number[]) => {
    for (const value of values) found.add(figure, "plugin", value)
  }
  for (let run = 1; run <= runs; run++) {
    progress(`cache: run ${run} of ${runs}, ${NAMES[form]}`)
    const bench = await startCacheBench(form, folder)
    try {
      const { riders } = await ride(bench, ["P-ONE"])
      add(SHARED, ...riders.map(({ shared }) => shared))
      add(ANEW, ...riders.map(({ anew }) => anew))
      const five = await ride(bench, ["P-A", "P-B", "P-C", "P-D", "P-E"])
      add(
        FIVE,
        five.riders.reduce((sum, { anew }) => sum + anew, 0),
      )
      const { common, beside, askedAfter } = await launchSiblings(bench, await talk(bench))
      found.add(BESIDE, "native", common)
      add(BESIDE, ...beside)
      add(ASKED, Math.max(...askedAfter))
      add(UNHELD, await launchUncached(bench))
      add(STEP, Math.max(...(await workInThread(bench))))
    } finally {
      await bench.stop()
    }
  }
  const row = (figure: string, unit: Unit, goal: Goal | undefined, against?: string): Row => {
    const { native: first, plugin } = found.of(figure)
    return { case: "cache", figure: `${figure} (${NAMES[form]})`, unit, goal, native: first, plugin, against }
  }
  // OpenAI's form finds a beginning by its session's own key: there siblings share nothing.
  const besideGoal: Goal | undefined =
    form === "anthropic" ? { text: "at most 10 % and 100 tokens", limit: (common) => common / 10 + 100 } : undefined
  return [
    row(SHARED, "%", atLeast(99, "%")),
    row(ANEW, "tokens", atMost(600, "tokens")),
    row(FIVE, "tokens", under(3000, "tokens")),
    row(BESIDE, "tokens", besideGoal, "the first of them"),
    row(ASKED, "ms", under(2500, "ms")),
    row(UNHELD, "ms", under(1500, "ms")),
    row(STEP, "tokens", atMost(400, "tokens")),
  ]
}

async function withoutCache(runs: number, folder: string, progress: (text: string) => void): Promise<Row[]> {
  const own: number[] = []
  const ownWithTask: number[] = []
  const without: number[] = []
  const withTask: number[] = []
  for (let run = 1; run <= runs; run++) {
    progress(`cache: run ${run} of ${runs}, five short answers`)
    await withBenches(
      [native, superagents(folder, { nativeTask: false }), superagents(folder)],
      async ([theirs, ours, both]) => {
        if (!theirs || !ours || !both) return
        const [read, lean, whole] = [await readIn(theirs), await readIn(ours), await readIn(both)]
        own.push(read.all)
        ownWithTask.push(read.all + whole.task)
        without.push(lean.all)
        withTask.push(whole.all)
      },
    )
  }
  const most: Goal = { text: "at most that", limit: (theirs) => theirs }
  const row = { case: "cache", unit: "tokens" as const, goal: most }
  return [
    { ...row, figure: `${ANSWERS}, \`nativeTask: false\``, native: own, plugin: without },
    {
      ...row,
      figure: ANSWERS,
      native: ownWithTask,
      plugin: withTask,
      against: "native, and `task`'s definition again",
    },
  ]
}

/** What a parent reads in the request with which it knows all five answers. */
const readIn = async (bench: Bench) => readBy((await readAnswers(bench)).at(-1) as ModelRequest)

const SHARED = "a riding fork: what its first request shares with its parent's last"
const ANEW = "a riding fork: read anew by its first request"
const FIVE = "five riders of one message: read anew, all together"
const BESIDE = "five siblings of one message: read anew by each but the first"
const ASKED = "five siblings of one message: first answer's beginning → the last is asked"
const UNHELD = "five siblings without a cache: first asked → last asked"
const STEP = "a thread's turn of seven steps: read anew at a step beside what is new, the most"
const ANSWERS = "5 short answers that come together: what the parent reads in the end"
