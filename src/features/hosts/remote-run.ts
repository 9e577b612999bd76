import { setTimeout as sleep } from "node:timers/promises"
import { CallError, candidatesText } from "../../core/errors.ts"
import { modelKey } from "../../core/limits.ts"
import { type AgentInfo, isListed, type NewSession } from "../../core/ports.ts"
import type { Model } from "../../core/task.ts"
import { duration } from "../../lib/format.ts"
import { oneLine, tail } from "../../lib/text.ts"
import { QUESTIONS } from "../../runtime/launch/checks.ts"
import { PlaceError } from "../../runtime/places/place.ts"
import type { CommandResult } from "../../runtime/places/process.ts"
import { beginningText, conflictMarkersText, leftText } from "../worktrees/worktree.ts"
import type { NextState } from "../worktrees/worktrees.ts"
import { quoted } from "./channel.ts"
import { type Contact, NoContact } from "./connection.ts"
import { textOf } from "./frames.ts"
import type { Machine } from "./hosts.ts"
import type { HostSettings } from "./options.ts"
import { type JobState, parseJobState } from "./orders.ts"
import { type RemoteSession, type RemoteSessionInfo, skewOfIDs } from "./remote-session.ts"

/**
 * Longest wait for contact while a caller waits for the answer, in ms. `contactTimeout` may be hours, while short
 * losses of contact end within 40 s.
 */
const MOST_WAIT_MS = 60_000

/** Waits for a host that has a task's changes. Throws a `PlaceError` after too long. */
export async function untilReached(machine: Machine, taskID: string, signal?: AbortSignal): Promise<void> {
  const { name, link, settings } = machine
  if (!link.contact) link.use(taskID, true)
  const most = Math.min(settings.contactTimeout || MOST_WAIT_MS, MOST_WAIT_MS)
  try {
    await contactWithin(machine, most, signal, (why) => `there was no contact within ${duration(most)} (${why})`)
  } catch (error) {
    if (error instanceof NoContact) throw workUnreachableError(name, error.message)
    throw error
  }
}

/** Waits for contact; `most` 0 for any time. Rejects with `NoContact`, in the words of `late` after that time. */
async function contactWithin(
  { link }: Machine,
  most: number,
  signal: AbortSignal | undefined,
  late: (why: string) => string,
): Promise<Contact> {
  const limit = most > 0 ? AbortSignal.timeout(most) : undefined
  try {
    return await link.reached(AbortSignal.any([limit, signal].filter((each) => each !== undefined)))
  } catch (error) {
    if (!limit?.aborted || signal?.aborted) throw error
    const { reach: state } = link
    throw new NoContact(late("why" in state && state.why ? oneLine(state.why) : "it does not answer"))
  }
}

export type ContactWait = {
  readonly taskID: string
  readonly signal: AbortSignal | undefined
  readonly waits: () => void
}

/**
 * Runs `work` with contact, and again where contact is lost meanwhile. Rejects with `NoContact` where the first
 * connection fails, at `contactTimeout`, or when `signal` is aborted.
 */
export async function inContact<Value>(
  machine: Machine,
  { taskID, signal, waits }: ContactWait,
  work: (contact: Contact) => Promise<Value>,
): Promise<Value> {
  const { link } = machine
  for (;;) {
    if (!link.contact) waits()
    const contact = await contactWith(machine, taskID, signal)
    try {
      return await work(contact)
    } catch (error) {
      // A lost connection makes all running calls fail, some of them with other errors than `NoContact`.
      const isLost = error instanceof NoContact || (!link.contact && !(error instanceof CallError))
      if (!isLost || signal?.aborted) throw error
    }
  }
}

function contactWith(machine: Machine, taskID: string, signal: AbortSignal | undefined): Promise<Contact> {
  const { name, link, settings } = machine
  const { contactTimeout } = settings
  link.use(taskID)
  return contactWithin(machine, contactTimeout, signal, (why) => {
    const known = [`${name} could not be reached: `, `${name}: `].find((start) => why.startsWith(start)) ?? ""
    return `${name} could not be reached: ${why.slice(known.length)} (it was tried for ${duration(contactTimeout)})`
  })
}

export const workUnreachableError = (name: string, why: string): PlaceError =>
  new PlaceError(
    `its work is still on ${name}, and ${why.replace(/\.$/, "")}. It is fetched as soon as ${name} answers.`,
    "host",
  )

/** Tools denied to remote agents: this plugin's, the board's, and OpenCode's for tasks. */
const NOT_OFFERED = ["superagents_*", "tasks_*", "task"]

type SessionRequest = {
  readonly folder: string
  readonly contact: Contact
  /** True if an earlier run of the task had a session. */
  readonly again: boolean
  /** Reads the rules of the local session. */
  readonly rules: () => Promise<NewSession["rules"]>
}

/**
 * Creates or finds a task's session on its host, with an agent and model that exist there. Throws where that is
 * impossible.
 */
export async function ensureRemoteSession(
  { name, server, settings }: Machine,
  remote: RemoteSession,
  { folder, contact, again, rules: localRules }: SessionRequest,
): Promise<RemoteSessionInfo> {
  const { taskID, title, agent } = remote
  const known = await server.sessionOf(folder, taskID)
  if (known) return known
  // A busy server may not list a session in a new folder: ask for the session itself.
  const kept = again ? remote.location?.session : undefined
  if (kept && (await server.lastMessage(kept.id))) return kept
  if (again)
    throw new CallError(
      `The session of task ${taskID} on ${name} no longer exists, so it cannot be resumed. Start a new superagents_task instead.`,
    )
  const asked = [localRules(), server.agents(folder), server.models(folder)] as const
  const [rules, agents, models] = await Promise.all(asked)
  const model = modelOnHost(remote, { name, agents, models, spare: settings.model })
  remote.model = model
  const refusals = NOT_OFFERED.map((permission) => ({ permission, pattern: "*", action: "deny" as const }))
  return server.createSession({
    folder,
    title,
    agent,
    model,
    // Pass on only refusals and rules about questions: what is allowed in local folders means nothing on the host.
    rules: [...rules.filter((rule) => rule.action === "deny" || rule.permission === QUESTIONS), ...refusals],
    taskID,
    skew: skewOfIDs(contact.skew),
  })
}

export type AgentAndModel = {
  readonly agent: string
  readonly model?: Model
  /** Set if the launching call named the model: no other model may be used. */
  readonly isModelNamed?: boolean
}

/** Agents and models of a host; `spare`: the option's substitute for a missing model, or "". */
export type HostCapabilities = {
  readonly name: string
  readonly agents: readonly Pick<AgentInfo, "name" | "model" | "mode" | "hidden">[]
  readonly models: readonly string[]
  readonly spare: string
}

/**
 * Model for a task on a host; undefined for the agent's own. Throws where the host lacks the agent or every usable
 * model.
 */
export function modelOnHost(
  { agent, model, isModelNamed }: AgentAndModel,
  { name, agents, models, spare }: HostCapabilities,
) {
  const found = agents.find((each) => each.name === agent)
  if (!found) {
    const names = agents.filter(isListed).map((each) => each.name)
    throw new PlaceError(`${name} has no agent "${agent}". ${candidatesText(names, 10)}`, "place")
  }
  if (!model || models.includes(modelKey(model))) return model
  if (found.model && !isModelNamed) return undefined
  if (!isModelNamed && models.includes(spare)) {
    const slash = spare.indexOf("/")
    return { provider: spare.slice(0, slash), id: spare.slice(slash + 1) }
  }
  throw new PlaceError(`${name} has no model ${modelKey(model)}. ${candidatesText(models, 10)}`, "place")
}

type Job = {
  readonly taskID: string
  readonly command: string
  readonly folder: string
  /** In ms; 0 for none. */
  readonly timeLimit: number
  readonly signal: AbortSignal
}

const LOOK_MS = 300
/** Most characters that are kept of a job's output, from its end. */
const MOST_OUTPUT_CHARS = 65_536

type JobMachine = Pick<Machine, "name" | "ask"> & { readonly settings: Pick<HostSettings, "contactTimeout"> }

/**
 * Runs a command on a host so that a lost connection does not end it: each look gives the job's state, and begins a job
 * that has not begun. Only the host says that the time is over: the job may have passed before. Without contact, that is
 * waited for at most `contactTimeout`. Rejects only if the host cannot be asked for another reason than contact.
 */
export async function runJob(
  { name, ask, settings: { contactTimeout } }: JobMachine,
  { taskID, command, folder, timeLimit, signal }: Job,
): Promise<CommandResult> {
  const id = `${taskID}-${Date.now().toString(36)}`
  const deadline = timeLimit > 0 ? Date.now() + timeLimit : Number.POSITIVE_INFINITY
  const mostAt = deadline + (contactTimeout || Number.POSITIVE_INFINITY)
  const look = async (stop: boolean): Promise<JobState & { readonly problem?: string; readonly isCut?: true }> => {
    try {
      const { out, problem } = await ask({ do: "job", folder, id, command, stop })
      return problem === undefined ? parseJobState(textOf(out)) : { problem }
    } catch (error) {
      if (error instanceof NoContact) return { isCut: true }
      throw error
    }
  }
  for (;;) {
    const stop = signal.aborted || Date.now() >= deadline
    const { problem, isCut, code, output = "" } = await look(stop)
    if (problem !== undefined && !stop) return { why: "not started", output: oneLine(problem) }
    if (code !== undefined) {
      if (!stop) await look(true)
      // A full disk leaves no code.
      if (!/^\d+$/.test(code)) return { why: "not started", output: `its exit code could not be stored on ${name}` }
      return { exitCode: Number(code), output: tail(output, MOST_OUTPUT_CHARS) }
    }
    const isFinal = stop && (!isCut || signal.aborted || Date.now() >= mostAt)
    if (isFinal) return { why: signal.aborted ? "stopped" : "time", output }
    await sleep(LOOK_MS, undefined, { ref: false })
  }
}

/** Most characters quoted from the end of a failed setup's output. */
const MOST_SETUP_CHARS = 1000

type SettingUp = {
  readonly folder: string
  /**
   * Path of the folder's marker. The marker's time is renewed after the command, whose files do not count as the
   * agent's work.
   */
  readonly made: string
  readonly taskID: string
  readonly timeLimit: number
  readonly signal: AbortSignal | undefined
}

/**
 * Runs the setup command in a task's remote folder, if `command` is not empty. Throws a `CallError` if the command
 * fails.
 */
export async function setUp(
  machine: Machine,
  command: string,
  { made, signal = new AbortController().signal, ...at }: SettingUp,
): Promise<void> {
  if (command === "") return
  const marked = `sh -c ${quoted(command)} && touch -c ${quoted(made)}`
  const ended = await runJob(machine, { command: marked, signal, ...at })
  if (ended.exitCode === 0) return
  throw new CallError(
    `The setup command (\`${oneLine(command, 200)}\`) did not succeed on ${machine.name}. Repair that, or tell the user. The end of its output:\n${tail(ended.output, MOST_SETUP_CHARS)}`,
  )
}

/** Start state of a later run, and whether it includes the parent's current state. */
export type LaterRunStart = Pick<NextState, "conflicts" | "unsolved" | "left"> & { readonly bringIn: boolean }

export function prefaceOf(host: string, folder: string, again: boolean, begun?: LaterRunStart): string {
  const has = beginningText(again, begun?.bringIn === true && !begun.unsolved)
  return `# Where you work\n\nYou work on another machine, ${host}, in a git worktree of your own, ${folder}. It has ${has}, but of what git ignores only what the options copy. What you change is brought back when you are done: you need not commit it. Do not use git stash: what is in it is not brought back.${begun ? leftText(begun.left) : ""}${conflictMarkersText(begun?.conflicts ?? [], begun?.unsolved)}`
}
