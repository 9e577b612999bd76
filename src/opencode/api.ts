import { statSync } from "node:fs"
import { basename } from "node:path"
import { pathToFileURL } from "node:url"
import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Agent, Config, Provider, Session } from "@opencode-ai/sdk/v2/types"
import { mayGoOn } from "../core/outcome.ts"
import type {
  Activity,
  AgentInfo,
  Clock,
  LogFields,
  LogLevel,
  Message,
  NewSession,
  OpencodeApi,
  Owner,
  Persona,
  Prompt,
  SessionInfo,
  TaskRecord,
  Toast,
  UnverifiedRecord,
} from "../core/ports.ts"
import type { GroupSchemas } from "../core/record.ts"
import type { Ask, Task, TaskDraft } from "../core/task.ts"
import { SerialQueue } from "../lib/promises.ts"
import { recordDecoder, type UiMetadata } from "../runtime/record/codec.ts"
import { ownershipOf, type Signer } from "../runtime/record/identity.ts"
import { Cached, EventCache, SessionFolders } from "./cache.ts"
import { call, find, OpencodeLog } from "./client.ts"
import { errorLine, figureOf, picksAgent, promptModel, sessionModel, toAgent, toMessage } from "./convert.ts"
import { permissionAsk, questionAsk, type RawEvent } from "./events.ts"
import { lastWanted, messageID, pagesOf, partID, storedMessages, Transcripts, taskOfMessage } from "./messages.ts"
import { costWithBelow, OpencodeRecords } from "./records.ts"

/**
 * How long agents and models are kept, in ms. They change only with the configuration, which OpenCode reads when it
 * starts.
 */
const KEEP_MS = 300_000
/** Longest wait for OpenCode's event about a message that was just stored, in ms. */
const HEARD_MS = 50
/** Most sessions that a search for records reads. */
const MOST_SESSIONS = 5000
/** Sessions that are read with one call: OpenCode builds each answer in one piece, and nothing else runs meanwhile. */
const PAGE = 100

/** OpenCode's project id for folders outside repositories, which share nothing. */
const NO_PROJECT = "global"

/** Callbacks and facts about folders in which the instance has sessions. */
export type FolderCallbacks = {
  /** Folder that this instance serves. */
  readonly folder: string
  /**
   * `entered`: called when a session moves to another folder. `left`: called when the last session has left a folder.
   */
  readonly entered: (folder: string) => void
  readonly left: (folder: string) => void
  /** Whether earlier processes may have left tasks in other folders. */
  readonly mayHaveOtherFolders: () => boolean
}

const HERE_ALONE: FolderCallbacks = { folder: "", entered: () => {}, left: () => {}, mayHaveOtherFolders: () => false }

/** Id and parts of a message that is to be stored. */
type Stored = { readonly messageID: string; readonly parts: readonly unknown[] }

/** Adapter for the HTTP API of OpenCode 1.x. */
export class OpencodeHttpApi implements OpencodeApi {
  readonly #client: OpencodeClient
  readonly #instance: string
  readonly #surroundings: FolderCallbacks
  readonly #sessionFolders: SessionFolders
  readonly #records: OpencodeRecords
  readonly #log: OpencodeLog
  readonly #clock: Clock
  readonly #startedAt: number
  readonly #eventCache = new EventCache()
  readonly #transcripts = new Transcripts()
  readonly #agents = new Cached<readonly Agent[]>(KEEP_MS, () => this.#readAgents())
  /** The providers with their models, for `OpencodeModels` as well. */
  readonly providers = new Cached<readonly Provider[]>(KEEP_MS, () => this.#readProviders())
  readonly #toasts = new SerialQueue()
  /** OpenCode's configuration; undefined until OpenCode hands it over. Other plugins change this object in place. */
  config: Config | undefined

  /**
   * `instance`: owner of the records that are written here. `signer`: signs with the installation's key. `kinds`: kinds
   * of groups that records may have.
   */
  constructor(
    client: OpencodeClient,
    instance: string,
    signer: Signer,
    clock: Clock,
    surroundings: FolderCallbacks = HERE_ALONE,
    kinds: readonly GroupSchemas[] = [],
  ) {
    this.#surroundings = surroundings
    this.#sessionFolders = new SessionFolders(surroundings.folder)
    this.#client = client
    this.#instance = instance
    this.#records = new OpencodeRecords({
      client,
      clock,
      instance,
      folder: surroundings.folder || undefined,
      signer,
      decode: recordDecoder(kinds),
      lastMetadata: (sessionID) => this.#eventCache.row(sessionID)?.metadata,
    })
    this.#log = new OpencodeLog(client, clock)
    this.#clock = clock
    this.#startedAt = clock.now()
  }

  /** Updates the caches from an event. `folder`: the folder from which the event comes. */
  handleEvent(event: RawEvent, folder = this.#surroundings.folder): void {
    this.#eventCache.handleEvent(event)
    this.#transcripts.handleEvent(event)
    if (event.type === "permission.asked" || event.type === "question.asked")
      this.#sessionFolders.recordAsk(String((event.properties as { id?: unknown } | undefined)?.id), folder)
  }

  folderOf(sessionID: string): string {
    return this.#sessionFolders.folderOf(sessionID)
  }

  async move(sessionID: string, folder: string): Promise<void> {
    const destination = { directory: folder }
    try {
      await call("move a session", this.#client.experimental.controlPlane.moveSession({ sessionID, destination }))
    } catch (error) {
      // A deleted session is in no folder, so its move back to this folder may fail.
      if (folder !== this.#surroundings.folder || (await this.session(sessionID))) throw error
    }
    this.#eventCache.forget(sessionID)
    const left = this.#sessionFolders.moved(sessionID, folder)
    if (folder !== this.#surroundings.folder) this.#surroundings.entered(folder)
    if (left === undefined) return
    this.#surroundings.left(left)
    await this.#endInstance(left)
  }

  /** Ends the instances in other folders, because nobody would supervise the sessions there any more. */
  async leaveAll(): Promise<void> {
    await Promise.all(this.#sessionFolders.folders().map((folder) => this.#endInstance(folder)))
  }

  async #endInstance(folder: string): Promise<void> {
    await call("end an instance", this.#client.instance.dispose({ directory: folder }))
  }

  async createSession(input: NewSession, draft: TaskDraft): Promise<string> {
    const { parentID, title, agent, model, rules } = input
    const folder = this.folderOf(parentID)
    const session = await call(
      "create a session",
      this.#client.session.create({
        ...(folder !== this.#surroundings.folder && { directory: folder }),
        parentID,
        title,
        agent,
        model: sessionModel(model),
        permission: [...rules],
        metadata: this.#records.metadataOf(draft),
      }),
    )
    this.#records.renewed(session.id)
    this.#sessionFolders.moved(session.id, folder)
    return session.id
  }

  /**
   * Deletes a session. A working session is aborted first: deleted during a request that hangs, it would stay busy for
   * ever.
   */
  async deleteSession(sessionID: string): Promise<void> {
    await this.abort(sessionID)
    await call("delete a session", this.#client.session.delete({ sessionID }))
    this.#sessionFolders.moved(sessionID, this.#surroundings.folder)
  }

  async deleteMessage(sessionID: string, messageID: string): Promise<void> {
    await find("delete a message", this.#client.session.deleteMessage({ sessionID, messageID }))
  }

  async session(sessionID: string): Promise<SessionInfo | undefined> {
    const session = await this.#row(sessionID)
    return session && this.#toSession(session)
  }

  async #row(sessionID: string): Promise<Session | undefined> {
    const row = await find("read a session", this.#client.session.get({ sessionID }))
    if (row) this.#eventCache.read(row)
    return row
  }

  async parent(sessionID: string): Promise<SessionInfo | undefined> {
    const known = this.#eventCache.freshRow(sessionID)
    // A session with an undo blocks work, and the event for the end of the undo may be lost. So OpenCode is asked.
    return known && !known.revert ? this.#toSession(known) : this.session(sessionID)
  }

  readonly messageID = messageID
  readonly taskOf = taskOfMessage

  /** Whether a user wrote this message: neither the plugin sent it, nor is it in an agent's session. */
  isPersons(sessionID: string, messageID: string): boolean {
    return taskOfMessage(messageID) === undefined && this.#eventCache.row(sessionID)?.parentID === undefined
  }

  /** With `noReply`, OpenCode answers when the message is stored; otherwise at once, without a result. */
  async prompt(prompt: Prompt): Promise<void> {
    const { sessionID, messageID, agent, model, noReply, lookedFor, again, parts, files = [] } = prompt
    const texts = parts.map((part, index) => ({ type: "text" as const, id: partID(messageID, index), ...part }))
    // OpenCode reads these files and adds their content to the message, as it does for a user's own messages.
    const attachments = files.map((file, index) => ({
      type: "file" as const,
      id: partID(messageID, parts.length + index),
      url: pathToFileURL(file).href,
      filename: basename(file),
      mime: statSync(file, { throwIfNoEntry: false })?.isDirectory() ? "application/x-directory" : "text/plain",
    }))
    const message = { sessionID, messageID, agent, ...promptModel(model), noReply, parts: [...texts, ...attachments] }
    if (noReply && lookedFor) await this.#storeUnseen(message)
    else if (noReply) {
      const stored = await call("store a message", this.#client.session.prompt(message))
      this.#eventCache.stored(stored)
    } else {
      // OpenCode does not report messages from before the abort again, so the events since then are incomplete.
      if (again) this.#transcripts.forget(sessionID)
      else this.#transcripts.follow(sessionID, messageID)
      await call("send a prompt", this.#client.session.promptAsync(message))
    }
  }

  /**
   * Stores a message and waits for OpenCode's event about it. A call that returns the stored message would cost a fifth
   * more.
   */
  async #storeUnseen(message: Parameters<OpencodeClient["session"]["promptAsync"]>[0] & Stored): Promise<void> {
    const ends: (() => void)[] = []
    const reported = new Promise<void>((resolve) => {
      ends.push(this.#eventCache.awaits(message.messageID, message.parts.length, resolve))
    })
    try {
      await call("store a message", this.#client.session.promptAsync(message))
      const late = new Promise<void>((resolve) => void ends.push(this.#clock.after(HEARD_MS, resolve)))
      await Promise.race([reported, late])
    } finally {
      for (const end of ends) end()
    }
  }

  async abort(sessionID: string): Promise<void> {
    await find("abort a session", this.#client.session.abort({ sessionID }))
  }

  async activity(): Promise<ReadonlyMap<string, Activity>> {
    const working = new Map<string, Activity>()
    const statuses = await this.#everywhere((where) =>
      call("read the sessions' status", this.#client.session.status(where)),
    )
    for (const [sessionID, status] of statuses.flatMap(({ found }) => Object.entries(found))) {
      if (status.type === "busy") working.set(sessionID, { type: "busy" })
      if (status.type === "retry")
        working.set(sessionID, {
          type: "retry",
          attempt: status.attempt,
          message: errorLine(status.message),
          next: status.next,
        })
    }
    return working
  }

  async messagesSince(sessionID: string, messageID: string): Promise<readonly Message[]> {
    const heard = this.#transcripts.take(sessionID, messageID)
    if (heard) return heard
    let isStored: Promise<boolean> | undefined
    const stored = await storedMessages(this.#client, sessionID, async (page) => {
      if (page.some(({ info }) => info.id === messageID)) return true
      isStored ??= this.hasMessage(sessionID, messageID, 0)
      return !(await isStored)
    })
    const start = stored.findIndex(({ info }) => info.id === messageID)
    return start < 0 ? [] : stored.slice(start).map(toMessage)
  }

  async lastMessage(sessionID: string, isWanted?: (message: Message) => boolean): Promise<Message | undefined> {
    if (isWanted) return lastWanted(pagesOf(this.#client, sessionID), toMessage, isWanted)
    const page = await find("read messages", this.#client.session.messages({ sessionID, limit: 1 }))
    return page?.[0] && toMessage(page[0])
  }

  async isAnsweredElsewhere(sessionID: string): Promise<boolean> {
    // An open answer from before this process is most often that of a process that died.
    const goesOn = (last: Message | undefined) =>
      last !== undefined && last.createdAt >= this.#startedAt && mayGoOn(last, this.#clock.now())
    const newest = await this.lastMessage(sessionID)
    const isMessage = newest?.role === "user"
    if (isMessage && this.#eventCache.partsOf(newest.id) < 0 && goesOn(newest)) return true
    // Another process's open answer may stand before messages that were stored without a wake.
    const answer = isMessage ? await this.lastMessage(sessionID, ({ role }) => role === "assistant") : newest
    return goesOn(answer) && !(await this.activity()).has(sessionID)
  }

  async hasMessage(sessionID: string, messageID: string, parts: number): Promise<boolean> {
    if (this.#eventCache.partsOf(messageID) >= parts) return true
    const message = await this.#message(sessionID, messageID)
    return message !== undefined && message.parts.length >= parts
  }

  async persona(sessionID: string): Promise<Persona | undefined> {
    // OpenCode notes in the session with what each message was sent, also where another process sent it.
    const { agent: newest, model: used } = this.#eventCache.freshRow(sessionID) ?? (await this.#row(sessionID)) ?? {}
    // There, "default" stands for no variant.
    const variant = used?.variant === "default" ? undefined : used?.variant
    if (newest && used) return { agent: newest, model: { provider: used.providerID, id: used.id, variant } }
    const known = this.#eventCache.persona(sessionID)
    if (known) return known
    const [last] = await call("read messages", this.#client.session.messages({ sessionID, limit: 1 }))
    if (!last) return undefined
    const asked = last.info.role === "user" ? last : await this.#message(sessionID, last.info.parentID)
    if (asked?.info.role !== "user") return undefined
    const { agent, model } = asked.info
    return { agent, model: { provider: model.providerID, id: model.modelID, variant: model.variant } }
  }

  async caller(sessionID: string, messageID: string): Promise<Persona | undefined> {
    // A user who calls has no message, so the session's agent and model are used.
    if (messageID === "") return this.persona(sessionID)
    const known = this.#eventCache.persona(sessionID)
    if (known) return known
    const message = await this.#message(sessionID, messageID)
    if (message?.info.role !== "assistant") return undefined
    const { agent, providerID, modelID, variant } = message.info
    return { agent, model: { provider: providerID, id: modelID, variant } }
  }

  async openTodos(sessionID: string): Promise<number> {
    const todos = (await find("read todos", this.#client.session.todo({ sessionID }))) ?? []
    return todos.filter(({ status }) => status !== "completed" && status !== "cancelled").length
  }

  async agents(): Promise<readonly AgentInfo[]> {
    return (await this.#agents.get()).map(toAgent)
  }

  primaryTools(): readonly string[] {
    return this.config?.experimental?.primary_tools ?? []
  }

  /**
   * Whether permission rules allow or deny OpenCode's `task` tool for single agents. True where the rules are not
   * known.
   */
  async picksAgents(agent: string, sessionID: string): Promise<boolean> {
    const [agents, session] = await Promise.all([this.#agents.get(), this.parent(sessionID)])
    const rules = agents.find(({ name }) => name === agent)?.permission
    return rules === undefined || [...rules, ...(session?.rules ?? [])].some(picksAgent)
  }

  async models(): Promise<readonly string[]> {
    return (await this.providers.get()).flatMap(({ id, models }) =>
      Object.entries(models).flatMap(([model, { variants = {} }]) => {
        const name = `${id}/${model}`
        return [name, ...Object.keys(variants).map((variant) => `${name}#${variant}`)]
      }),
    )
  }

  async refuse(ask: Ask, message: string): Promise<void> {
    const folder = this.#sessionFolders.askedIn(ask.id, ask.sessionID)
    const where = folder === undefined ? {} : { directory: folder }
    const refusal =
      ask.kind === "permission"
        ? this.#client.permission.reply({
            ...where,
            requestID: ask.id,
            reply: "reject",
            message: message || undefined,
          })
        : this.#client.question.reject({ ...where, requestID: ask.id })
    await find("refuse a question", refusal as Promise<{ data?: unknown; error?: unknown }>)
  }

  async openAsks(): Promise<readonly Ask[]> {
    const askedAt = Date.now()
    const [permissions, questions] = await Promise.all([
      this.#asks((where) => call("read open permission questions", this.#client.permission.list(where))),
      this.#asks((where) => call("read open questions", this.#client.question.list(where))),
    ])
    return [
      ...permissions.map((asked) => permissionAsk(asked, askedAt)),
      ...questions.map((asked) => questionAsk(asked, askedAt)),
    ]
  }

  saveRecord(sessionID: string, task: Task | undefined): Promise<void> {
    // OpenCode is awake for this call anyway, and no model waits for it, so pending log lines are written now.
    this.#log.flush()
    return this.#records.save(sessionID, task)
  }

  writeUiMetadata(sessionID: string, uiMetadata: UiMetadata | undefined): Promise<void> {
    return this.#records.writeUiMetadata(sessionID, uiMetadata)
  }

  clearRequest(sessionID: string, requestID: string): Promise<void> {
    return this.#records.clearRequest(sessionID, requestID)
  }

  async recordsSince(since: number, whose?: "project"): Promise<readonly TaskRecord[]> {
    const { folder, mayHaveOtherFolders } = this.#surroundings
    const scope = whose ?? (mayHaveOtherFolders() ? "project" : undefined)
    const sessions = scope
      ? await call("list sessions", this.#client.session.list({ scope, start: since, limit: MOST_SESSIONS }))
      : await this.#changedSince(since)
    // A session in the folder of another instance is left to that instance, unless the whole project is asked for.
    const isAsked = (row: Session, keptIn = row.directory) =>
      scope === undefined || keptIn === folder || (whose === "project" && row.projectID !== NO_PROJECT)
    const costOf = costWithBelow(sessions, ({ cost }) => figureOf(cost))
    return (await this.#records.amongSome(sessions, (row) => isAsked(row))).flatMap(({ row, record }) =>
      isAsked(row, record.owner.folder) ? [{ ...record, cost: costOf(row) }] : [],
    )
  }

  /** The folder's sessions that changed since then, read in pages, the newest first. */
  async #changedSince(since: number): Promise<readonly Session[]> {
    const found = new Map<string, Session>()
    const beganAt = this.#clock.now()
    let [limit, cursor] = [PAGE, undefined as number | undefined]
    while (found.size < MOST_SESSIONS) {
      const before = found.size
      const page = this.#client.experimental.session.list({ start: since, limit, cursor, archived: true })
      const rows = await call("list sessions", page)
      for (const row of rows) found.set(row.id, row)
      const oldest = rows.at(-1)
      if (!oldest || rows.length < limit) break
      // More sessions may have changed at the time of the oldest: the next page begins with all of them.
      if (found.size === before) limit *= 2
      cursor = oldest.time.updated + 1
    }
    // A session that changed meanwhile has left the pages that were still to come.
    if (cursor !== undefined) for (const row of await this.#changedSince(beganAt)) found.set(row.id, row)
    return [...found.values()]
  }

  unverified(): readonly UnverifiedRecord[] {
    return this.#records.unverified()
  }

  /** Asks OpenCode in every folder that has sessions. Folders whose instance does not answer are left out. */
  async #everywhere<Found>(ask: (where?: { directory: string }) => Promise<Found>) {
    const others = this.#sessionFolders.folders().map(async (folder) => {
      const found = await ask({ directory: folder }).catch(() => undefined)
      return found === undefined ? [] : [{ folder, found }]
    })
    const here = { folder: this.#surroundings.folder, found: await ask() }
    return [here, ...(await Promise.all(others)).flat()]
  }

  async #asks<Asked extends { id: string }>(ask: (where?: { directory: string }) => Promise<Asked[]>) {
    const answers = await this.#everywhere(ask)
    for (const { folder, found } of answers) for (const { id } of found) this.#sessionFolders.recordAsk(id, folder)
    return answers.flatMap(({ found }) => found)
  }

  recordsOf(parentID: string): Promise<readonly TaskRecord[]> {
    return this.#records.of(parentID)
  }

  ownership(owner: Owner): "ours" | "alive" | "dead" {
    return ownershipOf(owner, this.#instance)
  }

  /** Shows toasts in the order of the calls, because the screen keeps only the last toast. */
  toast({ title, message, variant }: Toast): void {
    const show = () => call("show a toast", this.#client.tui.showToast({ title, message, variant })).catch(() => {})
    void this.#toasts.take(show)
  }

  log(level: LogLevel, message: string, fields: LogFields = {}): void {
    this.#log.add(level, message, fields)
  }

  #message(sessionID: string, messageID: string) {
    return find("read a message", this.#client.session.message({ sessionID, messageID }))
  }

  #toSession(session: Session): SessionInfo {
    return {
      id: session.id,
      parentID: session.parentID,
      rules: session.permission ?? [],
      reverted: Boolean(session.revert),
      record: this.#records.in(session),
    }
  }

  #readAgents(): Promise<readonly Agent[]> {
    return call("read the agents", this.#client.app.agents())
  }

  async #readProviders(): Promise<readonly Provider[]> {
    return (await call("read the models", this.#client.config.providers())).providers
  }
}
