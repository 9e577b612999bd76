import { CallError, messageOf } from "../../core/errors.ts"
import type { ChangedFiles } from "../../core/feature.ts"
import type { Preparing } from "../../core/task.ts"
import { isBefore } from "../../opencode/compatibility.ts"
import {
  type ArchiveResult,
  type EnterRequest,
  type MergeResult,
  type Place,
  PlaceError,
  type PlaceRunLimits,
  type PreparedPlace,
  type SharedPlaces,
  type SweptLeftover,
  type WorkDiff,
} from "../../runtime/places/place.ts"
import type { CommandResult } from "../../runtime/places/process.ts"
import { type Checkout, readRef, requireCheckout, treeOf, writeRefs } from "../worktrees/repository.ts"
import { changedBetween } from "../worktrees/shared-state.ts"
import type { Worktrees } from "../worktrees/worktrees.ts"
import { NoContact } from "./connection.ts"
import { fetchWork, hiddenOnHost, type RepositoryHost, removeRemoteFolder, send } from "./files.ts"
import type { Hosts, Machine } from "./hosts.ts"
import { type CommitResult, completeMarkerPath, folderIn, hostRepositoryFolders } from "./orders.ts"
import {
  ensureRemoteSession,
  inContact,
  type LaterRunStart,
  prefaceOf,
  runJob,
  setUp,
  untilReached,
  workUnreachableError,
} from "./remote-run.ts"
import { hasRemoteWork, NO_SESSION, type RemoteSession } from "./remote-session.ts"

/**
 * A worktree on another machine. State and changes are kept in the local repository, as for a local worktree; the files
 * are on the host only while the task works.
 */
export class HostPlace implements Place {
  readonly #hosts: Hosts
  readonly #machine: Machine
  readonly #worktrees: Worktrees
  readonly #setup: string

  constructor(hosts: Hosts, machine: Machine, worktrees: Worktrees, setup: string) {
    this.#hosts = hosts
    this.#machine = machine
    this.#worktrees = worktrees
    this.#setup = machine.settings.setup ?? setup
  }

  async capture(taskID: string, folder: string): Promise<undefined> {
    await this.#worktrees.capture(taskID, folder)
  }

  mayEnterAgain(request: EnterRequest): Promise<void> {
    return this.#worktrees.mayEnterAgain(request)
  }

  async enter({
    taskID,
    folder,
    again = false,
    bringIn = false,
    timeLimit,
    signal,
  }: EnterRequest): Promise<PreparedPlace> {
    const remote = this.#remoteSessionOf(taskID)
    const doing = (what: Preparing | undefined) => this.#hosts.tell(remote, { type: "preparing", what })
    const rules = () => this.#hosts.rulesOf(remote)
    const { name } = this.#machine
    remote.live = true
    // Until the prompt is sent, the remote folder must not be read: OpenCode would start an instance for a folder that
    // does not exist.
    remote.promptSent = false
    const waiting = { taskID, signal, waits: () => doing(`connecting to ${name}`) }
    try {
      const { folders, begun } = await inContact(this.#machine, waiting, async (contact) => {
        const problem = versionProblem(name, contact.server.version)
        if (problem) throw new PlaceError(problem, "host")
        doing(`sending files to ${name}`)
        const repositoryHost = await this.#repositoryHost(folder, contact)
        remote.sent = true
        const begun = await this.#machine.inTurn(() => this.#send(repositoryHost, folder, taskID, again, bringIn))
        return { folders: repositoryHost.folders, begun }
      })
      const [remoteFolder, made] = [folderIn(folders, taskID), completeMarkerPath(folders, taskID)]
      signal?.throwIfAborted()
      await setUp(this.#machine, this.#setup, { folder: remoteFolder, made, taskID, timeLimit, signal })
      const session = remote.bare
        ? NO_SESSION
        : await inContact(this.#machine, waiting, (contact) =>
            ensureRemoteSession(this.#machine, remote, { folder: remoteFolder, contact, again, rules }),
          )
      remote.location = { folder: remoteFolder, session }
      return { directory: folder, preface: prefaceOf(name, remoteFolder, again, begun) }
    } catch (error) {
      // If files were sent, the connection is still needed: they are removed after the run's end.
      if (!remote.sent) this.#machine.link.release(taskID)
      if (error instanceof NoContact) throw new PlaceError(error.message, "host")
      throw error
    } finally {
      doing(undefined)
    }
  }

  /**
   * State and result of tries are kept in the local repository, as for worktrees; current changes are read from the
   * host.
   */
  get shared(): SharedPlaces {
    return { ...this.#worktrees.shared, changedIn: (...given) => this.#changedIn(...given) }
  }

  async #changedIn(taskID: string, folder: string, globs: readonly string[]): Promise<ChangedFiles> {
    const repositoryHost = await this.#repositoryHost(folder)
    const checkout = await requireCheckout(folder)
    const sent = await this.#machine.inTurn(() => this.#fetch(repositoryHost, checkout, taskID))
    if (!sent) throw new CallError(`its folder on ${this.#machine.name} is gone`)
    const start = await readRef(checkout, "start", taskID)
    if (start === undefined) return { files: [], named: [] }
    const { files, named } = await changedBetween(checkout, start, sent.commit, globs)
    const hidden = await hiddenOnHost(repositoryHost, taskID, await treeOf(checkout, start), globs)
    return { files, named: [...named, ...hidden] }
  }

  /** Fetches the work, merges the parent's current state in the local repository, and sends the result to the host. */
  async bringIn(taskID: string, folder: string): Promise<MergeResult> {
    const repositoryHost = await this.#repositoryHost(folder)
    const checkout = await requireCheckout(folder)
    return this.#machine.inTurn(async () => {
      const sent = await this.#fetch(repositoryHost, checkout, taskID)
      const next = sent && (await this.#worktrees.next(taskID, folder, true))
      if (!next) throw new CallError(`its folder on ${this.#machine.name} is gone, so it could not be checked there`)
      if (next.conflicts.length > 0) return { kind: "conflict", files: next.conflicts }
      if (next.commit === sent.commit) return { kind: "nothing" }
      await send(repositoryHost, checkout, { taskID, commit: next.commit, copy: [], inPlace: true })
      await next.settle()
      return { kind: "merged", files: next.files, submodules: [] }
    })
  }

  /** Runs a check on the host. The command goes on while the connection is lost, and its result is read afterwards. */
  run(taskID: string, command: string, limits: PlaceRunLimits): Promise<CommandResult> {
    const { location } = this.#remoteSessionOf(taskID)
    if (!location) throw new Error(`there is no contact with ${this.#machine.name}`)
    return runJob(this.#machine, { taskID, command, folder: location.folder, ...limits })
  }

  async reach(taskID: string, signal?: AbortSignal): Promise<void> {
    if (hasRemoteWork(this.#hosts.remoteSessionOf(taskID))) await untilReached(this.#machine, taskID, signal)
  }

  /** Archives a task's work. The changes are fetched and verified before anything is removed on the host. */
  async archive(taskID: string, folder: string): Promise<ArchiveResult> {
    const { name, link } = this.#machine
    try {
      return await this.#archive(taskID, folder)
    } catch (error) {
      // A lost connection makes all running calls fail, some of them with other errors than `NoContact`.
      if (hasRemoteWork(this.#hosts.remoteSessionOf(taskID)) && (error instanceof NoContact || !link.contact))
        throw workUnreachableError(name, messageOf(error))
      throw error
    }
  }

  async #archive(taskID: string, folder: string): Promise<ArchiveResult> {
    const remote = this.#hosts.remoteSessionOf(taskID)
    const { name, link } = this.#machine
    if (!hasRemoteWork(remote)) {
      if (remote) this.#hosts.markLocal(remote)
      link.release(taskID)
      return withRemoteFolder(await this.#worktrees.archive(taskID, folder), remote)
    }
    if (remote.bare) {
      await this.#removeBare(remote, folder)
      return this.#worktrees.archive(taskID, folder)
    }
    // Ask for a connection, because archiving is tried again at the next contact.
    if (!link.contact) link.use(taskID, true)
    const repositoryHost = await this.#repositoryHost(folder)
    const remoteFolder = folderIn(repositoryHost.folders, taskID)
    // The abort of the run's end may not have reached the host, or may still be on its way.
    remote.abortPending = true
    await this.#hosts.findAgain(remote)
    this.#hosts.fetches(remote, true)
    const unsaved = await this.#machine
      .inTurn(async () => {
        const sent = await this.#fetch(repositoryHost, await requireCheckout(folder), taskID)
        remote.isFolderGone = !sent && remote.promptSent
        if (sent?.unsaved.length) return sent.unsaved
        await this.#remove(repositoryHost, remote, sent)
        return []
      })
      .finally(() => this.#hosts.fetches(remote, false))
    remote.held = unsaved.length > 0 ? { folder: `${remoteFolder} on ${name}`, unsaved } : undefined
    await this.#hosts.keep(remote)
    this.#hosts.markLocal(remote)
    // Release the connection, unless an entry in the cleanup queue still needs it.
    if (remote.home === undefined) link.release(taskID)
    return withRemoteFolder(await this.#worktrees.archive(taskID, folder), remote)
  }

  /**
   * Removes the folder in which tries were checked again. If this fails, the cleanup queue gets an entry for the folder.
   */
  async #removeBare(remote: RemoteSession, folder: string): Promise<void> {
    this.#hosts.markLocal(remote)
    try {
      const repositoryHost = await this.#repositoryHost(folder)
      await this.#machine.inTurn(() => removeRemoteFolder(repositoryHost, remote.taskID))
      await this.#hosts.cleanup.cancel(remote)
      this.#machine.link.release(remote.taskID)
    } catch {
      remote.home = WHATEVER
      await this.#hosts.cleanup.schedule(remote)
    }
  }

  /** Removes the remote folder of fetched work. If this fails, the cleanup queue gets an entry for the folder. */
  async #remove(repositoryHost: RepositoryHost, remote: RemoteSession, sent: CommitResult | undefined): Promise<void> {
    const { taskID } = remote
    try {
      // A server that is gone has no instance either, and without contact the removal below fails as well.
      if (sent) await this.#machine.server.leave(folderIn(repositoryHost.folders, taskID)).catch(() => {})
      // Remove also without a complete folder: an earlier removal may have been interrupted.
      await removeRemoteFolder(repositoryHost, taskID, sent?.commit)
    } catch (error) {
      if (!sent) throw error
      remote.home = sent.commit
      await this.#hosts.cleanup.schedule(remote)
    }
  }

  /**
   * Archives the work of a cleared task in the cleanup queue, and completes the clearing. A folder whose work was fetched
   * is removed if its state is still the fetched one: otherwise a later run may use the folder.
   */
  async cleanUp({ taskID, parentFolder, home }: RemoteSession): Promise<void> {
    if (home === undefined) {
      await this.archive(taskID, parentFolder)
      await this.#worktrees.clear(parentFolder, [taskID])
    } else {
      const repositoryHost = await this.#repositoryHost(parentFolder)
      await this.#machine.inTurn(() => removeRemoteFolder(repositoryHost, taskID, home || undefined))
    }
  }

  show(taskID: string, folder: string, mostLines: number): Promise<WorkDiff> {
    return this.#worktrees.show(taskID, folder, mostLines)
  }

  merge(taskID: string, folder: string): Promise<MergeResult> {
    return this.#worktrees.merge(taskID, folder)
  }

  isMergeBegun(taskID: string, folder: string): Promise<boolean> {
    return this.#worktrees.isMergeBegun(taskID, folder)
  }

  /**
   * Clears tasks. Work that is still on the host gets an entry in the cleanup queue, which survives a restart; its refs
   * stay until it is fetched, because it is counted and merged from them.
   */
  async clear(folder: string, taskIDs: readonly string[]): Promise<readonly string[]> {
    const here: string[] = []
    for (const id of taskIDs) {
      const remote = this.#hosts.remoteSessionOf(id)
      if (hasRemoteWork(remote)) await this.#hosts.cleanup.schedule(remote)
      else here.push(id)
    }
    return this.#worktrees.clear(folder, here)
  }

  readonly sweep = async (): Promise<readonly SweptLeftover[]> => []

  readonly expire = async (): Promise<readonly string[]> => []

  #remoteSessionOf(taskID: string): RemoteSession {
    const remote = this.#hosts.remoteSessionOf(taskID)
    if (!remote) throw new Error(`the session of ${taskID} is not known`)
    return remote
  }

  async #repositoryHost(folder: string, contact = this.#machine.link.contact): Promise<RepositoryHost> {
    const { name, ask } = this.#machine
    if (!contact) throw new PlaceError(`${name} cannot be reached now.`, "host")
    const { commonDir } = await requireCheckout(folder)
    return { name, ask, folders: hostRepositoryFolders(contact.cache, this.#hosts.keyOf(commonDir)) }
  }

  /** Fetches the state of a task's folder; undefined without a folder. */
  async #fetch(repositoryHost: RepositoryHost, to: Checkout, taskID: string): Promise<CommitResult | undefined> {
    const sent = await fetchWork(repositoryHost, to, taskID)
    if (!sent) return undefined
    const { commit: state, ignored } = sent
    await writeRefs(to, taskID, { state, ...(ignored && { ignored }), incoming: undefined })
    return sent
  }

  /** Sends the state with which a run begins. With `bringIn`, a later run gets the parent's current state, too. */
  async #send(
    repositoryHost: RepositoryHost,
    folder: string,
    taskID: string,
    again: boolean,
    bringIn: boolean,
  ): Promise<LaterRunStart | undefined> {
    const from = await requireCheckout(folder)
    const { copy } = this.#machine.settings
    if (again) {
      // Work left by an earlier run is fetched before the folder is made anew.
      const remote = this.#remoteSessionOf(taskID)
      const sent = remote.home === undefined ? await this.#fetch(repositoryHost, from, taskID) : undefined
      // Keep the folder if it has files that no commit can hold.
      const inPlace = sent !== undefined && sent.unsaved.length > 0
      // Removing the folder also removes its work ref on the host, by which another process would remove the new folder.
      if (!inPlace) await removeRemoteFolder(repositoryHost, taskID)
      // Another process may have queued the removal, which this one has not read.
      await this.#hosts.cleanup.cancel(remote)
      const next = await this.#worktrees.next(taskID, folder, bringIn)
      await send(repositoryHost, from, { taskID, commit: next.commit, copy, inPlace })
      await next.settle()
      return { ...next, bringIn }
    }
    const commit = await readRef(from, "state", taskID)
    if (!commit)
      throw new CallError(
        `The work of task ${taskID} is no longer kept in this repository, so it cannot be resumed. Start a new superagents_task instead.`,
      )
    await send(repositoryHost, from, { taskID, commit, copy })
    return undefined
  }
}

/** Says also what became of the folder on the host, in each archive until the task runs again. */
function withRemoteFolder(archived: ArchiveResult, remote: RemoteSession | undefined): ArchiveResult {
  const { held, isFolderGone, host } = remote ?? {}
  const gone = `Its folder on ${host} is gone: of what it changed there, only what was fetched before is kept`
  return {
    ...archived,
    ...(held && { held: held.folder, unsaved: [...archived.unsaved, ...held.unsaved] }),
    ...(isFolderGone && { notes: [gone, ...(archived.notes ?? [])] }),
  }
}

/** Oldest supported OpenCode on a host. */
const LEAST = "1.18.28"

/** Sentence about an unsupported version; undefined for a supported one. */
export const versionProblem = (host: string, version: string): string | undefined =>
  version.startsWith("1.") && !isBefore(version, LEAST)
    ? undefined
    : `${host} has OpenCode ${version}; ${LEAST} or newer, below 2, is needed.`

/** Value of `home` for a folder without work, which may be removed in any state. */
const WHATEVER = ""
