import { encode } from "gpt-tokenizer/encoding/o200k_base"
import { openSession } from "../../test/support/drive.ts"
import type { ModelRequest } from "../../test/support/model.ts"
import { gate } from "../../test/support/plugin.ts"
import { type Case, collector } from "../support/case.ts"
import { type Bench, type Job, native, superagents, withBenches } from "../support/contender.ts"
import { eventuallyQuiet } from "../support/quiet.ts"
import { atMostPlus } from "../support/rows.ts"
import { allTold, childAskedAt, epoch, handOver, jobsOf } from "../support/turn.ts"

const TASKS = 5
/** What a model takes to read a message and answer; what comes meanwhile it reads in one further step. */
const THINKING_MS = 1500
/** What a short answer says, of which the prompt says nothing. */
const answerTo = ({ description }: Job): string =>
  `The result of ${description} is good: ${"it was looked at in every corner. ".repeat(8)}`

/** A parent that wants five short answers: how often its model is asked, and how much it is made to read. */
export const answersCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  const bare = collector()
  for (let run = 1; run <= runs; run++) {
    const contenders = [
      native,
      superagents(built.folder),
      ...(short ? [] : [superagents(built.folder, { notifyAnswerChars: 0 })]),
    ]
    await withBenches(contenders, async (benches) => {
      for (const [index, bench] of benches.entries()) {
        progress(`answers: run ${run} of ${runs}, ${index < 2 ? bench.contender.name : "plugin, answers fetched"}`)
        const { requests, tokens } = await measure(bench)
        const into = index < 2 ? found : bare
        into.add("requests", bench.contender.name, requests)
        into.add("tokens", bench.contender.name, tokens)
      }
    })
  }
  const title = `${TASKS} short answers that come together`
  const against = "the plugin, answers fetched (`notifyAnswerChars` 0)"
  const rows = (["requests", "tokens"] as const).flatMap((unit) => {
    const figure = `${title}: ${unit === "requests" ? "the parent's turns" : "tokens that its model reads"}`
    const { plugin } = found.of(unit)
    const goal = unit === "requests" ? { goal: atMostPlus(1, "requests") } : {}
    return [
      { case: "answers", figure, unit, ...found.of(unit), ...goal },
      ...(short ? [] : [{ case: "answers", figure, unit, against, native: bare.of(unit).plugin, plugin }]),
    ]
  })
  return rows
}

async function measure(bench: Bench) {
  const { model, host } = bench
  const jobs = jobsOf(TASKS)
  const sessionID = await openSession(host)
  // They answer together, when all have been asked and the parent's turn is over.
  const door = gate()
  const removeChildren = model.use(async ({ lastUser }) => {
    const job = jobs.find(({ prompt }) => prompt === lastUser)
    if (!job) return undefined
    await door.opened
    return { text: answerTo(job) }
  })
  const removeParent = model.use((request) => (request.sessionID === sessionID ? parentTo(request, jobs) : undefined))
  const turn = await handOver(bench, sessionID, jobs)
  for (const { child } of turn.launched) await childAskedAt(bench, child)
  door.open()
  await allTold(bench, sessionID, jobs)
  await eventuallyQuiet(bench)
  removeChildren()
  removeParent()
  const requests = model.requests.filter((each) => each.sessionID === sessionID && epoch(each.at) > turn.shownAt)
  const last = requests.at(-1)
  if (!last || missing(last, jobs).length > 0) throw new Error("the parent did not come to know every answer")
  const tokens = requests.map(({ body }) => encode(JSON.stringify([body.messages, body.tools])).length)
  return { requests: requests.length, tokens: tokens.reduce((sum, each) => sum + each, 0) }
}

/** A parent that fetches what it was not brought, once it has heard of all of them. */
function parentTo(request: ModelRequest, jobs: readonly Job[]) {
  if (request.userTexts.length < 2) return undefined
  const wanted = missing(request, jobs)
  const toFetch = wanted.length > 0 && request.toolResults.length === 0 && request.lastUser.includes("tasks finished.")
  if (!toFetch) return { text: "I see.", delay: THINKING_MS }
  const ids = request.messages.flatMap(({ role, content }) =>
    role === "tool" ? (/Task ID: (bg_\w+)/.exec(String(content))?.[1] ?? []) : [],
  )
  return { delay: THINKING_MS, tools: ids.map((task_id) => ({ name: "superagents_output", args: { task_id } })) }
}

const missing = ({ messages }: ModelRequest, jobs: readonly Job[]): Job[] => {
  const text = JSON.stringify(messages)
  return jobs.filter((job) => !text.includes(answerTo(job).trim()))
}
