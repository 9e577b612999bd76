import { openSession } from "../../test/support/drive.ts"
import type { ModelRequest } from "../../test/support/model.ts"
import { gate } from "../../test/support/plugin.ts"
import type { Bench, Job } from "./contender.ts"
import { eventuallyQuiet } from "./quiet.ts"
import { allTold, childAskedAt, epoch, handOver, jobsOf } from "./turn.ts"

export const TASKS = 5
const TAG = "short"
/** What a model takes to read a message and answer; what comes meanwhile it reads in one further step. */
const THINKING_MS = 1500
/** What a short answer says, of which the prompt says nothing. */
const answerTo = ({ description }: Job): string =>
  `The result of ${description} is good: ${"it was looked at in every corner. ".repeat(8)}`

/** Has a parent launch five tasks and come to know their answers; its requests once it was told that they run. */
export async function readAnswers(bench: Bench): Promise<readonly ModelRequest[]> {
  const { model, opencode } = bench
  const jobs = jobsOf(TASKS, TAG)
  const sessionID = await openSession(opencode)
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
  return requests
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
