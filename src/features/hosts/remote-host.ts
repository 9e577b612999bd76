import { answerText, classify } from "../../core/outcome.ts"
import {
  type Activity,
  type Message,
  type NewSession,
  type OpencodeApi,
  OpencodeError,
  type Prompt,
  type SessionInfo,
  type TaskRecord,
} from "../../core/ports.ts"
import { type Ask, isActive, type Task, type TaskDraft } from "../../core/task.ts"
import { NoContact } from "./connection.ts"
import type { Hosts, Machine } from "./hosts.ts"
import {
  isParkedUnbegun,
  movedID,
  movedMessage,
  newRemoteSession,
  type RemoteFolder,
  type RemoteSession,
} from "./remote-session.ts"

const movedPrompt = (prompt: Prompt, sessionID: string, skew: number): Prompt => ({
  ...prompt,
  sessionID,
  messageID: movedID(prompt.messageID, skew),
})

/** Adds an interrupted answer to messages without an end, because the server that worked on them has died. */
function withServerDeath(messages: readonly Message[], host: string): readonly Message[] {
  const userMessage = messages.findLast(({ role }) => role === "user")
  const last = messages.at(-1)
  if (!userMessage || !last || classify(messages, "working")) return messages
  return [...messages, interruptedAnswer(last, userMessage.id, `OpenCode on ${host} stopped while it worked.`)]
}

/**
 * Messages of a run whose process died before it had sent the prompt to the host. `stored`: those that are here. Without
 * a session on the host, it cannot be resumed.
 */
function unsentMessages(id: string, { host, location }: RemoteSession, stored: readonly Message[]): readonly Message[] {
  const how = location ? "" : " Launch a new task."
  const text = `OpenCode stopped or was restarted before its agent had begun on ${host}.${how}`
  const [prompt = { id, role: "user", createdAt: Date.now(), summary: false, parts: [] }] = stored
  return [prompt, interruptedAnswer(prompt, id, text)]
}

/** Answer that nobody wrote: it stands after this last message, and tells what kept the agent from an answer. */
const interruptedAnswer = ({ id, createdAt }: Message, parentID: string, text: string): Message => ({
  id: `${id}~`,
  role: "assistant",
  createdAt,
  parentID,
  error: { message: text, interrupted: true },
  summary: false,
  parts: [],
})

/** Turns stored answers back into answers: the local session holds them as user messages. */
function withStoredAnswers(messages: readonly Message[]): readonly Message[] {
  return messages.map((message, at) =>
    at > 0 && isAnswer(message.id)
      ? {
          ...message,
          role: "assistant" as const,
          finish: "done" as const,
          parentID: messages[0]?.id,
          completedAt: message.createdAt,
        }
      : message,
  )
}

const ANSWER = /^msg_[0-9a-f]{12}[a-z0-9]{8}A[0-9a-z]{5}$/
const RUN_PROMPT = /^msg_[0-9a-f]{12}[a-z0-9]{8}P[0-9a-z]{5}$/
const isAnswer = (id: string): boolean => ANSWER.test(id)

/** Generation of the run whose prompt this is. */
const generationOf = (promptID: string): number => Number.parseInt(promptID.slice(-5), 36) || 0

/** Least time between two searches for a session, in ms. */
const SEARCH_MS = 10_000

/** Time in ms within which reads of a folder share one request. */
const SAME_LOOK_MS = 400

type Answering = {
  readonly machine: Machine
  readonly location: NonNullable<RemoteSession["location"]>
}

/**
 * Wraps `OpencodeApi` so that sessions of remote tasks are read and written on their hosts. `activity` reports which
 * sessions cannot be reached.
 */
export class RemoteApi {
  readonly #local: OpencodeApi
  readonly #hosts: Hosts

  private constructor(local: OpencodeApi, hosts: Hosts) {
    this.#local = local
    this.#hosts = hosts
  }

  /** Returns `local` with methods replaced for remote sessions. */
  static over(local: OpencodeApi, hosts: Hosts): OpencodeApi {
    const api = new RemoteApi(local, hosts)
    hosts.keep = (remote) => api.#keep(remote)
    const own: Partial<OpencodeApi> = {
      createSession: (input, draft) => api.#createSession(input, draft),
      deleteSession: (sessionID) => api.#deleteSession(sessionID),
      session: async (sessionID) => api.#noted(await local.session(sessionID)),
      parent: async (sessionID) => api.#noted(await local.parent(sessionID)),
      prompt: (prompt) => api.#prompt(prompt),
      move: async (sessionID, folder) => {
        if (!hosts.remote(sessionID) || local.folderOf(sessionID) !== folder) await local.move(sessionID, folder)
      },
      deleteMessage: (sessionID, id) =>
        api.#route(
          sessionID,
          () => local.deleteMessage(sessionID, id),
          ({ machine, location: { session } }) => machine.server.deleteMessage(session.id, movedID(id, session.skew)),
        ),
      abort: (sessionID) => api.#abort(sessionID),
      activity: () => api.#activity(),
      messagesSince: (sessionID, id) => api.#messagesSince(sessionID, id),
      lastMessage: (sessionID, isWanted) =>
        api.#route(
          sessionID,
          () => local.lastMessage(sessionID, isWanted),
          async ({ machine, location: { session } }) => {
            const skews = skewsOf(machine, session)
            const wanted = isWanted && ((message: Message) => isWanted(movedMessage(message, skews)))
            const last = await machine.server.lastMessage(session.id, wanted)
            return last && movedMessage(last, skews)
          },
        ),
      openTodos: (sessionID) =>
        api.#route(
          sessionID,
          () => local.openTodos(sessionID),
          ({ machine, location: { session } }) => machine.server.openTodos(session.id),
        ),
      refuse: (ask, message) =>
        api.#route(
          ask.sessionID,
          () => local.refuse(ask, message),
          ({ machine, location: { folder } }) => machine.server.refuse(ask, folder, message),
        ),
      openAsks: () => api.#openAsks(),
      recordsSince: async (since, whose) => api.#notedAll(await local.recordsSince(since, whose)),
      recordsOf: async (parentID) => api.#notedAll(await local.recordsOf(parentID)),
    }
    return override(local, own)
  }

  async #createSession(input: NewSession, draft: TaskDraft): Promise<string> {
    const sessionID = await this.#local.createSession(input, draft)
    const { place, id: taskID } = draft
    if (!place || !this.#hosts.has(place.kind)) return sessionID
    const { title, agent, model, isModelNamed } = input
    const { kind: host, folder: parentFolder } = place
    const session = { taskID, sessionID, host, parentFolder, title, agent, model, isModelNamed }
    const state = { live: true, sent: false, promptSent: false, ...(draft.group && { bare: true }) }
    this.#hosts.add(newRemoteSession({ ...session, ...state }))
    return sessionID
  }

  async #deleteSession(sessionID: string): Promise<void> {
    const remote = this.#hosts.remote(sessionID)
    if (remote) this.#hosts.drop(remote)
    await this.#local.deleteSession(sessionID)
  }

  #noted(info: SessionInfo | undefined): SessionInfo | undefined {
    if (info?.record) this.#notedAll([info.record])
    return info
  }

  #notedAll(records: readonly TaskRecord[]): readonly TaskRecord[] {
    for (const { task, owner } of records)
      this.#hosts.note(task, isUnsettled(task), this.#local.ownership(owner) !== "ours")
    return records
  }

  /**
   * Stores the prompt in the local session, and sends it to the host as soon as there is contact. The prompt of a run that
   * is parked before it begins is sent when the run begins: until then its host has no folder for it.
   */
  async #prompt(prompt: Prompt): Promise<void> {
    const remote = this.#hosts.remote(prompt.sessionID)
    if (!remote) return this.#local.prompt(prompt)
    if (prompt.noReply && RUN_PROMPT.test(prompt.messageID)) {
      remote.promptSent = false
      return this.#stored(prompt)
    }
    if (prompt.noReply && !remote.promptSent)
      throw new OpencodeError(`its agent has not begun on ${remote.host}, so it would not get the message`)
    remote.live = true
    remote.abortPending = false
    await this.#stored(prompt)
    const machine = this.#hosts.machine(remote.host)
    machine.link.use(remote.taskID)
    remote.promptSent = true
    for (;;) {
      try {
        await machine.link.reached()
        if (remote.abortPending) throw new OpencodeError("the run was stopped before its prompt was sent")
        // An earlier process may have begun the session.
        if (!remote.location) await this.#hosts.findAgain(remote)
        if (!remote.location) throw notFound(remote, machine)
        const { session } = remote.location
        remote.server = machine.link.contact?.server.id
        await machine.server.prompt(movedPrompt(prompt, session.id, session.skew))
        return
      } catch (error) {
        // Send the prompt again. If the host has already accepted it, the repeated id stores nothing new. A closed
        // connection rejects at once: a loop would hold up this process.
        if (!isCut(error, machine) || !remote.live || isClosed(machine)) throw error
      }
    }
  }

  /**
   * Stores a prompt in the local session, to be shown there. If this fails, agent and model are left out: they may not
   * exist on this machine.
   */
  async #stored(prompt: Prompt): Promise<void> {
    const { agent: _agent, model: _model, ...bare } = prompt
    const kept = { ...bare, noReply: true }
    await this.#local.prompt({ ...prompt, noReply: true }).catch(() => this.#local.prompt(kept).catch(() => {}))
  }

  async #abort(sessionID: string): Promise<void> {
    const remote = this.#hosts.remote(sessionID)
    if (!remote?.live) return remote ? undefined : this.#local.abort(sessionID)
    const machine = this.#hosts.machine(remote.host)
    if (!remote.location) {
      remote.abortPending = remote.promptSent
      return
    }
    try {
      await machine.server.abort(remote.location.session.id)
    } catch (error) {
      if (!isCut(error, machine)) throw error
      remote.abortPending = true
    }
  }

  async #activity(): Promise<ReadonlyMap<string, Activity>> {
    const live = this.#hosts.live().filter(({ promptSent }) => promptSent)
    if (live.length === 0) return this.#local.activity()
    const [near, ...activities] = await Promise.all([
      this.#local.activity(),
      ...live.map((remote) => this.#doing(remote)),
    ])
    const all = new Map(near)
    for (const [nth, remote] of live.entries()) {
      const doing = activities[nth]
      if (doing) all.set(remote.sessionID, doing)
    }
    return all
  }

  async #doing(remote: RemoteSession): Promise<Activity | undefined> {
    const machine = this.#hosts.machine(remote.host)
    if (!machine.link.contact) return { type: "unreachable" }
    try {
      if (!remote.location) await this.#search(remote)
      if (!remote.location) return remote.neverBegan ? undefined : { type: "unreachable" }
      const { activity, asks } = await this.#look(remote, machine, remote.location.folder)
      const known = new Map(remote.asks.map((ask) => [ask.id, ask]))
      const before = [...known.keys()].join()
      // A question keeps the time at which it was first seen.
      remote.asks = asks.map((ask) => known.get(ask.id) ?? { ...ask, sessionID: remote.sessionID })
      if (remote.asks.map(({ id }) => id).join() !== before) this.#hosts.show(remote)
      return activity.get(remote.location.session.id)
    } catch {
      return { type: "unreachable" }
    }
  }

  /** Looks again for the session of an earlier process, which was not found at contact. */
  async #search(remote: RemoteSession): Promise<void> {
    const now = Date.now()
    if (now - (remote.searchedAt ?? Number.NEGATIVE_INFINITY) < SEARCH_MS) return
    remote.searchedAt = now
    await this.#hosts.findAgain(remote)
    // A prompt is stored here before it is sent. A busy server may not list the session of a sent one.
    remote.neverBegan = !remote.location && !(await this.#local.lastMessage(remote.sessionID))
  }

  #look(remote: RemoteSession, { server }: Machine, folder: string): Promise<RemoteFolder> {
    const now = Date.now()
    if (remote.look && now - remote.look.at < SAME_LOOK_MS) return remote.look.found
    const look = { at: now, found: server.folder(folder) }
    remote.look = look
    look.found.catch(() => {
      if (remote.look === look) remote.look = undefined
    })
    return look.found
  }

  async #messagesSince(sessionID: string, messageID: string): Promise<readonly Message[]> {
    const remote = this.#hosts.remote(sessionID)
    if (!remote) return this.#local.messagesSince(sessionID, messageID)
    if (!remote.live) return withStoredAnswers(await this.#local.messagesSince(sessionID, messageID))
    if (!remote.location) {
      // Another process may have sent the prompt since that search.
      const isUnsent = remote.neverBegan && !(await this.#local.lastMessage(sessionID))
      return isUnsent ? unsentMessages(messageID, remote, []) : this.#cachedMessages(remote, messageID)
    }
    const machine = this.#hosts.machine(remote.host)
    const { session } = remote.location
    try {
      const found = await machine.server.messagesSince(session.id, movedID(messageID, session.skew))
      if (found.length === 0 && (await this.#isUnsent(remote, machine, movedID(messageID, session.skew))))
        return unsentMessages(messageID, remote, await this.#local.messagesSince(sessionID, messageID))
      const skews = skewsOf(machine, session)
      const moved = found.map((message) => movedMessage(message, skews))
      const askedAt = found.findLast(({ role }) => role === "user")?.createdAt
      const messages = (await this.#serverDied(remote, machine, askedAt)) ? withServerDeath(moved, remote.host) : moved
      remote.read = { since: messageID, messages }
      // Store the answer before the end is reported: a later process may have to report the end without the host.
      if (classify(messages, "working")) await this.#keep(remote)
      return messages
    } catch (error) {
      if (!isCut(error, machine)) throw error
      return this.#cachedMessages(remote, messageID)
    }
  }

  /**
   * True if an earlier process died before it sent this prompt, which its host does not have. A later message there is
   * the one by which its user has replaced the prompt.
   */
  async #isUnsent(remote: RemoteSession, machine: Machine, promptID: string): Promise<boolean> {
    const { promptSent, location } = remote
    if (!promptSent || !location) return false
    const last = await machine.server.lastMessage(location.session.id)
    // A prompt that this process has sent meanwhile may be on its way.
    return remote.server === undefined && (last === undefined || last.id < promptID)
  }

  /**
   * Messages for a reader without contact: those of the last read, else the stored answer. Before the first contact also
   * the prompt alone, with which a parked run goes on.
   */
  async #cachedMessages({ read, sessionID, location }: RemoteSession, messageID: string): Promise<readonly Message[]> {
    if (read?.since === messageID) return read.messages
    const kept = withStoredAnswers(await this.#local.messagesSince(sessionID, messageID))
    return !location || kept.some(({ role }) => role === "assistant") ? kept : []
  }

  /**
   * True if the server that got the prompt has died: another server runs now, and does not work on the session. If an
   * earlier process sent the prompt, a server that was started after the prompt is another one.
   */
  async #serverDied(remote: RemoteSession, machine: Machine, askedAt = Number.POSITIVE_INFINITY): Promise<boolean> {
    const { id, since } = machine.link.contact?.server ?? {}
    if (id === undefined) return false
    const isOther = remote.server === undefined ? since !== undefined && askedAt < since : remote.server !== id
    return isOther && (await this.#doing(remote)) === undefined
  }

  async #openAsks(): Promise<readonly Ask[]> {
    const near = await this.#local.openAsks()
    await this.#activity()
    return [...near, ...this.#hosts.live().flatMap(({ asks }) => asks)]
  }

  /**
   * Stores the run's answer in the local session, so that it can be read without the host. May be called repeatedly.
   */
  async #keep(remote: RemoteSession): Promise<void> {
    const { read, sessionID, taskID } = remote
    const last = read?.messages.at(-1)
    const text = read ? answerText(read.messages) : ""
    if (!read || !last || text === "" || remote.storedAnswerID === last.id) return
    const at = last.completedAt ?? last.createdAt
    const generation = generationOf(read.since)
    const message = {
      sessionID,
      messageID: this.#local.messageID("answer", taskID, generation, at),
      agent: remote.agent,
      model: remote.model,
      parts: [{ text }],
    }
    await this.#stored(message)
    remote.storedAnswerID = last.id
  }

  async #route<Value>(
    sessionID: string,
    locally: () => Promise<Value>,
    remotely: (answering: Answering) => Promise<Value>,
  ): Promise<Value> {
    const remote = this.#hosts.remote(sessionID)
    if (!remote?.live) return locally()
    if (!remote.location) throw new OpencodeError(`there is no contact with ${remote.host}`)
    try {
      return await remotely({ machine: this.#hosts.machine(remote.host), location: remote.location })
    } catch (error) {
      if (error instanceof OpencodeError) throw error
      throw new OpencodeError((error as Error).message)
    }
  }
}

const notFound = ({ taskID, host }: RemoteSession, { link }: Machine): Error =>
  link.contact
    ? new OpencodeError(`the session of ${taskID} on ${host} was not found`)
    : new NoContact(`there is no contact with ${host}`)

const skewsOf = ({ link }: Machine, { skew }: Answering["location"]["session"]) => ({
  ids: skew,
  clock: link.contact?.skew ?? 0,
})

/** True while the task's work may still be on the host. Of a first run that has not begun, nothing is there. */
function isUnsettled(task: Task): boolean {
  const { generation, startedAt } = task.run
  if (!isActive(task)) return task.outcome?.work === undefined
  return generation > 0 || (startedAt !== undefined && !isParkedUnbegun(task.run))
}

/** Whether a call failed for lack of contact, and not by an answer of the host. */
const isCut = (error: unknown, { link }: Machine): boolean =>
  error instanceof NoContact || (error instanceof OpencodeError && !error.notFound && !link.contact)

/** True if nothing opens the connection again by itself. */
const isClosed = ({ link: { reach } }: Machine): boolean => reach.phase === "idle" || reach.phase === "ended"

/**
 * Returns an object with some methods replaced. All other methods run on the target itself, with its private fields.
 */
export function override<Target extends object>(target: Target, own: Partial<Target>): Target {
  return new Proxy(target, {
    get(_target, name) {
      const mine = own[name as keyof Target]
      if (mine !== undefined) return mine
      const value = Reflect.get(target, name, target) as unknown
      return typeof value === "function" ? value.bind(target) : value
    },
  })
}
