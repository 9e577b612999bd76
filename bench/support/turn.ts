import { randomBytes } from "node:crypto"
import { unwrap } from "../../test/support/drive.ts"
import type { ModelRequest } from "../../test/support/model.ts"
import type { Opencode, OpencodeEventOf } from "../../test/support/opencode.ts"
import type { Bench, Job } from "./contender.ts"

const TIMEOUT_MS = 180_000

/** Marks that make job `index` of a turn known again in any text. Where tokens are counted, `tag` is always the same. */
export const jobsOf = (count: number, tag = randomBytes(4).toString("hex")): Job[] => {
  return Array.from({ length: count }, (_, index) => {
    const name = `job-${tag}-${String(index).padStart(3, "0")}.`
    return { description: name, prompt: `Do ${name}` }
  })
}

/** What a moment of the model's clock or the event log's is since the epoch, as OpenCode counts. */
export const epoch = (at: number): number => performance.timeOrigin + at

type Launched = { readonly job: Job; readonly child: string; readonly startedAt: number; readonly ms: number }

/** One turn of a parent in which its model hands over jobs; all times are ms since the epoch. */
export type Turn = {
  readonly sessionID: string
  readonly messageID: string
  readonly since: number
  readonly saidAt: number
  /** The model was asked what to do. */
  readonly askedAt: number
  /** The model was shown the results of its calls. */
  readonly shownAt: number
  readonly idleAt: number
  readonly launched: readonly Launched[]
}

const toolPart = (event: OpencodeEventOf) => {
  if (event.type !== "message.part.updated" || event.properties.part.type !== "tool") return undefined
  return event.properties.part
}

const launchedFrom = (
  opencode: Opencode,
  since: number,
  jobs: readonly Job[],
  callIDs: readonly string[],
): Launched[] => {
  const parts = opencode.events.all.slice(since).flatMap((event) => toolPart(event) ?? [])
  return jobs.flatMap((job, index) => {
    const part = parts.findLast(({ callID, state }) => callID === callIDs[index] && state.status !== "running")
    if (part?.state.status === "error") throw new Error(`not launched: ${part.state.error}`)
    if (part?.state.status !== "completed") return []
    const { time, metadata } = part.state
    return { job, child: String(metadata.sessionId), startedAt: time.start, ms: time.end - time.start }
  })
}

/** Has the parent's model hand over all jobs in one message and then end its turn. Asks OpenCode for nothing meanwhile. */
export const handOver = async (bench: Bench, sessionID: string, jobs: readonly Job[]): Promise<Turn> => {
  const { opencode, model, contender } = bench
  const tag = randomBytes(6).toString("hex")
  const callIDs = jobs.map((_, index) => `call_${tag}_${index}`)
  const tools = jobs.map((job, index) => ({ ...contender.call(job), id: callIDs[index] }))
  const isOurs = (request: ModelRequest) => request.sessionID === sessionID && request.lastUser.includes(tag)
  const remove = model.use((request) => {
    if (!isOurs(request)) return undefined
    return request.sinceUser.length === 0 ? { tools } : { text: "ok" }
  })
  try {
    const since = opencode.events.mark()
    const saidAt = epoch(performance.now())
    const { error } = await opencode.client.session.promptAsync({
      sessionID,
      parts: [{ type: "text", text: `Hand over your jobs ${tag}` }],
    })
    if (error) throw new Error(JSON.stringify(error))
    const asked = await model.waitFor((request) => isOurs(request) && request.sinceUser.length === 0, patient)
    // News of an early end may have come meanwhile, so the last message need not be ours any more.
    const shown = await model.waitFor((each) => each.sessionID === sessionID && each.number > asked.number, patient)
    const idle = await opencode.events.waitFor(
      (event) => event.type === "session.idle" && event.properties.sessionID === sessionID,
      { since, timeout: TIMEOUT_MS, what: `the turn in ${sessionID} ends` },
    )
    const launched = launchedFrom(opencode, since, jobs, callIDs)
    if (launched.length < jobs.length) throw new Error(`${jobs.length - launched.length} calls without an end`)
    const messageID = ownMessage(opencode, since, sessionID)
    return {
      sessionID,
      messageID,
      since,
      saidAt,
      askedAt: epoch(asked.at),
      shownAt: epoch(shown.at),
      idleAt: epoch(idle.at),
      launched,
    }
  } finally {
    remove()
  }
}

const patient = { timeout: TIMEOUT_MS }

const userMessage = (event: OpencodeEventOf, sessionID: string) => {
  if (event.type !== "message.updated" || event.properties.info.sessionID !== sessionID) return undefined
  return event.properties.info.role === "user" ? event.properties.info : undefined
}

const ownMessage = (opencode: Opencode, since: number, sessionID: string): string => {
  const infos = opencode.events.all.slice(since).flatMap((event) => userMessage(event, sessionID) ?? [])
  return infos[0]?.id ?? ""
}

/** How the end of one job came to its parent; ms since the epoch. */
export type Told = { readonly childEndedAt: number; readonly storedAt: number; readonly askedAt: number }

/** Resolves when the parent's model has been asked with the news of the first job. */
export const toldOf = async (
  { opencode, model }: Bench,
  { sessionID, messageID, since, launched }: Turn,
): Promise<Told> => {
  const [first] = launched
  if (!first) throw new Error("nothing was handed over")
  const { child, job } = first
  const request = await model.waitFor(
    (each) => each.sessionID === sessionID && each.sinceUser.length === 0 && each.lastUser.includes(job.description),
    patient,
  )
  const stored = await opencode.events.waitFor(
    (event) => {
      const info = userMessage(event, sessionID)
      return info !== undefined && info.id !== messageID
    },
    { since, timeout: TIMEOUT_MS, what: `news in ${sessionID}` },
  )
  const ended = await opencode.events.waitFor((event) => completedAt(event, child) !== undefined, {
    since,
    timeout: TIMEOUT_MS,
    what: `the end of ${child}`,
  })
  await opencode.events.waitFor(
    (event) => event.type === "session.idle" && event.properties.sessionID === sessionID && event.at > request.at,
    { since, timeout: TIMEOUT_MS, what: `the parent ${sessionID} is idle again` },
  )
  return {
    childEndedAt: completedAt(ended, child) as number,
    storedAt: userMessage(stored, sessionID)?.time.created as number,
    askedAt: epoch(request.at),
  }
}

const completedAt = (event: OpencodeEventOf, sessionID: string): number | undefined => {
  if (event.type !== "message.updated" || event.properties.info.sessionID !== sessionID) return undefined
  const { info } = event.properties
  return info.role === "assistant" ? info.time.completed : undefined
}

/** When the model was first asked to do a child's work. */
export const childAskedAt = async ({ model }: Bench, child: string): Promise<number> =>
  epoch((await model.waitFor((request) => request.sessionID === child, patient)).at)

/** Resolves when the parent holds news of each job, read or not, or when `limit` ms have passed without. */
export const allTold = async ({ opencode }: Bench, sessionID: string, jobs: readonly Job[], limit = TIMEOUT_MS) => {
  const deadline = performance.now() + limit
  for (const { description } of jobs) {
    const isNews = ({ type, properties }: OpencodeEventOf) => {
      if (type !== "message.part.updated" || properties.part.sessionID !== sessionID) return false
      return properties.part.type === "text" && isNewsOf(properties.part.text, description)
    }
    const timeout = Math.max(1, deadline - performance.now())
    const found = await opencode.events
      .waitFor(isNews, { timeout, what: `news of ${description}` })
      .catch(() => undefined)
    if (!found) return
  }
}

/** The plugin's hidden part names other tasks, too: those that still run. */
const isNewsOf = (text: string, description: string): boolean =>
  text.includes(description) && !text.startsWith("Automatic message")

/** The texts of the parent's messages that came from elsewhere than its user, by how often they name each job. */
export const countTold = async ({ opencode }: Bench, turn: Turn): Promise<{ lost: number; doubled: number }> => {
  const all = await unwrap(opencode.client.session.messages({ sessionID: turn.sessionID }))
  const texts = all
    .filter(({ info }) => info.role === "user" && info.id !== turn.messageID)
    .flatMap(({ parts }) => parts.flatMap((part) => (part.type === "text" ? part.text : [])))
  const counts = turn.launched.map(({ job }) => texts.filter((text) => isNewsOf(text, job.description)).length)
  return { lost: counts.filter((count) => count === 0).length, doubled: counts.filter((count) => count > 1).length }
}
