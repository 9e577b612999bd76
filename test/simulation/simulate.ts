import { type ChildProcess, fork } from "node:child_process"
import { availableParallelism } from "node:os"
import { fileURLToPath } from "node:url"
import { BrokenLife, type Figures, type Kind, live, NO_FIGURES, sum } from "./lives.ts"

/**
 * `LIVES=1000000 SEED=1 npm run simulate`: lives that many lives, from that seed on, in as many processes as there are
 * cores (WORKERS). Says how many a second, the seed of each broken life, and of each kind of broken promise the shortest
 * story. At SIGINT or SIGTERM it ends with the lives that are under way, and says what came of all. The script bundles it
 * first: run by tsx, which has each function carry its name, a life takes a sixth longer.
 */

type Order = { readonly first: number; readonly count: number }
type Broken = { readonly seed: number; readonly kind: string; readonly history: string }
type Report = { readonly lives: number; readonly figures: Figures; readonly broken: readonly Broken[] }

const FIRST = Number(process.env.SEED ?? 1)
const KIND = (process.env.KIND ?? "plain") as Kind
const LIVES = Number(process.env.LIVES ?? 10_000)
const WORKERS = Number(process.env.WORKERS ?? availableParallelism())
/** Lives that a process lives before it says how it went. */
const PORTION = 50
const TELL_EVERY_MS = 10_000

let isOver = false
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.on(signal, () => {
    isOver = true
  })
if (process.send) process.on("message", (order: Order) => void liveAll(order).then((report) => process.send?.(report)))
else process.exitCode = (await simulate()) ? 0 : 1

async function liveAll({ first, count }: Order): Promise<Report> {
  const broken: Broken[] = []
  let figures = NO_FIGURES
  for (let seed = first; seed < first + count; seed++)
    try {
      figures = sum(figures, await live(seed, KIND))
    } catch (error) {
      if (!(error instanceof BrokenLife)) throw error
      broken.push({ seed, kind: kindOf(error), history: error.message })
    }
  return { lives: count, figures, broken }
}

/** Breaches that differ in names and numbers alone are of one kind. */
const kindOf = ({ breaches }: BrokenLife): string =>
  (breaches[0] ?? "").replace(/\b[A-Z]\b/g, "X").replace(/[\d.e-]{2,}|\d/g, "n")

async function simulate(): Promise<boolean> {
  const begin = performance.now()
  const found = new Map<string, { history: string; times: number }>()
  let lives = 0
  let figures = NO_FIGURES
  let next = FIRST
  let toldAt = begin
  const speed = () => `${Math.round(lives / ((performance.now() - begin) / 1000))} a second`
  const take = (report: Report) => {
    lives += report.lives
    figures = sum(figures, report.figures)
    for (const { seed, kind, history } of report.broken) {
      const known = found.get(kind)
      const isShorter = !known || history.length < known.history.length
      found.set(kind, { history: isShorter ? history : known.history, times: (known?.times ?? 0) + 1 })
      console.log(known ? `life ${seed}: ${kind}` : `\n${history}\n`)
    }
    if (performance.now() - toldAt < TELL_EVERY_MS) return
    toldAt = performance.now()
    console.log(`${lives} lives, ${speed()}, ${[...found.values()].reduce((all, { times }) => all + times, 0)} broken`)
  }
  const work = (worker: ChildProcess) =>
    new Promise<void>((resolve, reject) => {
      const order = () => {
        const count = Math.min(PORTION, FIRST + LIVES - next)
        if (count <= 0 || isOver) return worker.disconnect()
        worker.send({ first: next, count } satisfies Order)
        next += count
      }
      worker.on("message", (report: Report) => {
        take(report)
        order()
      })
      worker.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`a process of the simulation: ${code}`))))
      order()
    })
  const file = fileURLToPath(import.meta.url)
  await Promise.all(Array.from({ length: WORKERS }, () => work(fork(file))))
  for (const { history } of found.values()) console.log(`\n${history}\n`)
  for (const [kind, { times }] of found) console.log(`${times} times: ${kind}`)
  const { inputs, calls, requests, deaths } = figures
  console.log(deaths)
  const seconds = Math.round((performance.now() - begin) / 1000)
  console.log(`${lives} lives from seed ${FIRST} in ${seconds} s, ${speed()}:`)
  console.log(
    `${inputs} inputs, ${calls} calls of OpenCode, ${requests} requests to models; ${found.size} kinds of breaches`,
  )
  return found.size === 0
}
