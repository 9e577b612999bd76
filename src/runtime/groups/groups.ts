import { createHash } from "node:crypto"
import { recentRuns } from "../../core/bill.ts"
import { CallError, messageOf } from "../../core/errors.ts"
import type { Feature, GroupRules, MemberPlan, Runtime } from "../../core/feature.ts"
import { chosenIn, type Group, type ItemsPlan, type ItemsResult, type TriesPlan } from "../../core/group.ts"
import { newTaskID } from "../../core/ids.ts"
import { failureText, type GroupStep, type ItemRow, itemsResult, triesResult } from "../../core/members.ts"
import { withSchema } from "../../core/outcome.ts"
import { type CheckResult, NO_RECEIPT, type Receipt } from "../../core/receipt.ts"
import type { ActiveRun } from "../../core/run/active-run.ts"
import {
  elapsed,
  isActive,
  isUnmerged,
  NO_FIGURES,
  type Outcome,
  type Run,
  type Task,
  type TaskDraft,
  type Value,
} from "../../core/task.ts"
import type { Answers } from "../answers.ts"
import { deniedAt, rulesFor } from "../launch/checks.ts"
import { type Queue, sweepUp } from "../launch/queue.ts"
import type { Ledgers } from "../ledgers.ts"
import type { Services } from "../parts.ts"
import type { Merging } from "../places/places.ts"
import type { Scheduler } from "../scheduler.ts"
import type { TaskHandle } from "../tasks/task-handle.ts"
import type { GroupArchive } from "./group-archive.ts"
import { membersOf } from "./plans.ts"

export type MemberPorts = {
  readonly features: readonly Feature[]
  readonly groupArchive: Pick<GroupArchive, "share" | "capture" | "giveBack">
  /** Queue and scheduler are created after this object, so they are asked for at the call. */
  readonly launching: () => { readonly queue: Queue; readonly scheduler: Scheduler }
  readonly randomID: () => string
  /** Called when a member works or is queued. */
  readonly began: (member: Task) => void
  /** Resolves when the task's next run may begin. */
  readonly over: (task: Task) => Promise<void>
}

/** Creates members of groups. A member runs like any other task, but only the group learns how it ended. */
export class GroupMembers {
  readonly #services: Services
  readonly #ports: MemberPorts

  constructor(services: Services, ports: MemberPorts) {
    this.#services = services
    this.#ports = ports
  }

  /** The next step of a group, as its feature decides now. */
  next(task: Task, { generation, creatingMembers: coming, done }: ActiveRun): GroupStep {
    const { store, clock } = this.#services
    const freeSlots = this.#ports.launching().scheduler.freeSlotsFor(task)
    const groupState = { coming, done, generation, freeSlots, now: clock.now() }
    return this.#rulesOf(task)?.next(membersOf(store, task), groupState) ?? { begin: [] }
  }

  /** Creates a member and starts or queues it. Rejects where that fails, and leaves no session behind. */
  make(task: Task, nth: number, text: string): Promise<void> {
    const winner = this.#services.store.get(chosenIn(task.group) ?? "")
    const making = winner ? this.#again(task, winner, text) : this.#make(task, nth, text)
    const handle = this.#services.store.handle(task.id)
    if (handle) handle.creatingMembers = Promise.allSettled([handle.creatingMembers, making])
    return making
  }

  /** Resolves when no member of this group is being created. */
  async made(taskID: string): Promise<void> {
    await this.#services.store.handle(taskID)?.creatingMembers
  }

  async #make(task: Task, nth: number, text: string): Promise<void> {
    const { group } = task
    const plan = this.#rulesOf(task)?.member(nth)
    if (!group || !plan) return
    const { groupArchive, began } = this.#ports
    const { queue, scheduler } = this.#ports.launching()
    const { opencode, store, background } = this.#services
    const draft = this.#draft(task, group, nth, plan)
    const { caller = "", under = "" } = draft.member ?? {}
    if (draft.place)
      await (plan.sharesFiles ? groupArchive.share(draft, task.id) : groupArchive.capture(draft, draft.place.folder))
    const reserved = scheduler.reserve({ ...draft, sessionID: "" })
    try {
      const { sessionID: _none, ...made } = reserved
      const { agent, model, depth } = made
      const rules = rulesFor(this.#services, await opencode.parent(caller), deniedAt(this.#services, depth))
      const title = `${draft.description} (@${agent} background agent)`
      const { isModelNamed } = store.handle(task.id) ?? {}
      const isNamed = isModelNamed || plan.model !== task.model
      const session = { parentID: under, title, agent, model, isModelNamed: isNamed, rules }
      const sessionID = await opencode.createSession(session, made)
      if (!store.runs(task)) {
        await opencode.deleteSession(sessionID)
        throw new CallError("it was stopped")
      }
      const part = { ...made, sessionID }
      await queue.begin(part, await this.#promptOf(task, nth, text))
      began(part)
    } catch (error) {
      scheduler.release(reserved)
      if (!store.get(draft.id)) background.run("sweep up after a part", () => sweepUp(this.#services, draft.id, under))
      throw error
    }
  }

  /** Resumes the former winner. */
  async #again(task: Task, winner: Task, text: string): Promise<void> {
    const { opencode, store, clock } = this.#services
    await this.#ports.over(winner)
    if (!(await opencode.session(winner.sessionID)))
      throw new CallError(`the session of the try that had won, ${winner.sessionID}, no longer exists`)
    await this.#ports.groupArchive.giveBack(winner, task.id)
    if (!store.runs(task)) throw new CallError("it was stopped")
    const now = clock.now()
    const current = store.get(winner.id) ?? winner
    const generation = current.run.generation + 1
    const run: Run = {
      generation,
      promptID: opencode.messageID("prompt", winner.id, generation, now),
      createdAt: now,
      timeout: task.group?.timeout ?? 0,
      ...verificationOf(task),
      recent: recentRuns(current, now),
    }
    const by = winner.member && { member: { ...winner.member, run: task.run.generation } }
    const change = store.apply(winner.id, { type: "resumed", run, by }, now)
    if (!change) throw new CallError("the try that had won is at work already")
    await this.#ports.launching().queue.enqueue(change.after, withSchema(text, run.schema))
  }

  async #promptOf(task: Task, nth: number, text: string): Promise<string> {
    const { store } = this.#services
    const isEarlier = ({ member }: Task) => (member?.nth ?? nth) < nth
    const earlier = () => membersOf(store, task).flatMap((each) => (isEarlier(each.task) ? [each.task] : []))
    const prompt = await this.#rulesOf(task)?.prompt(text, store.handle(task.id)?.items?.[nth], earlier)
    return withSchema(prompt ?? text, task.run.schema)
  }

  #rulesOf(task: Task): GroupRules | undefined {
    return this.#ports.features.flatMap(({ group }) => group?.(task) ?? [])[0]
  }

  #draft(
    task: Task,
    group: Group,
    nth: number,
    { name, sharesFiles: _files, isBelowGroup, ...own }: MemberPlan,
  ): TaskDraft {
    const { clock } = this.#services
    const now = clock.now()
    const id = newTaskID(this.#ports.randomID)
    const { parentID, parentMessageID, description, agent, depth } = task
    const { generation } = task.run
    return {
      id,
      parentID: task.sessionID,
      parentMessageID,
      description: `${description} (${name})`,
      agent,
      ...own,
      batch: `auto:${id}`,
      depth,
      member: {
        kind: group.kind,
        of: task.id,
        nth,
        run: generation,
        caller: parentID,
        under: isBelowGroup ? task.sessionID : parentID,
      },
      createdAt: now,
      earlier: NO_FIGURES,
      fingerprint: "",
      status: "running",
      run: {
        generation: 0,
        promptID: this.#services.opencode.messageID("prompt", id, 0, now),
        createdAt: now,
        timeout: group.timeout,
        ...verificationOf(task),
      },
      delivery: { state: "none" },
    }
  }
}

/** Members have the check, guard and schema of their group. */
const verificationOf = ({ run: { check, guard, schema } }: Task): Pick<Run, "check" | "guard" | "schema"> => ({
  ...(check !== undefined && { check }),
  ...(guard && { guard }),
  ...(schema && { schema }),
})

export type GroupPorts = {
  readonly groupArchive: GroupArchive
  readonly members: GroupMembers
  readonly answers: Answers
  readonly ledgers: () => Promise<Ledgers>
  readonly keep: Runtime["keep"]
  /** Resolves when a task's last end is closed. */
  readonly closed: (taskID: string) => Promise<void>
}

/** Completes a group's run once all members are closed. */
export class Groups {
  readonly #services: Services
  readonly #ports: GroupPorts

  constructor(services: Services, ports: GroupPorts) {
    this.#services = services
    this.#ports = ports
  }

  /** Closes a group's run and returns its result. With `merging`, the group's work is merged. */
  async archive(task: Task, merging: Merging | undefined): Promise<{ found: Partial<Outcome>; check?: CheckResult }> {
    const { members, closed } = this.#ports
    await members.made(task.id)
    for (const { task: member } of membersOf(this.#services.store, task)) await closed(member.id)
    const { found, check } = await this.#archive(task, merging)
    const unanswered = membersOf(this.#services.store, task).flatMap(
      ({ task: member }) => member.outcome?.unanswered ?? [],
    )
    return { found: { ...found, ...(unanswered.length > 0 && { unanswered }) }, ...(check && { check }) }
  }

  async #archive(task: Task, merging: Merging | undefined): Promise<{ found: Partial<Outcome>; check?: CheckResult }> {
    const { group } = task
    if (group?.kind === "tries") return this.#archiveTries(task, group, merging)
    return { found: group ? { group: await this.#closeItems(task, group) } : {} }
  }

  /** Loads the items of a map before a run. Returns the indexes of items that earlier runs have completed. */
  async open(task: Task): Promise<readonly number[]> {
    const { group } = task
    const handle = this.#services.store.handle(task.id)
    if (group?.kind !== "each" || !handle) return []
    if (task.run.generation > 0) {
      const done = await this.#readLedger(handle, group)
      if (done) return done
      throw new CallError(
        `The rows of its items in ${group.file} are gone, or not whole: nobody knows what is missing. Launch a new task.`,
      )
    }
    const ledgers = await this.#ports.ledgers()
    handle.rowHashes = new Map()
    const rows = (handle.items ?? []).map((item, index): ItemRow => ({ index, item, state: "not begun" }))
    await ledgers.write(group.file, rows)
    return []
  }

  /**
   * Loads the items of a map again after a restart. Returns the indexes of items that earlier runs completed; undefined
   * if the ledger cannot be read.
   */
  async reopen(task: Task): Promise<readonly number[] | undefined> {
    const { store } = this.#services
    const handle = store.handle(task.id)
    if (task.group?.kind !== "each" || !handle) return []
    const done = await this.#readLedger(handle, task.group)
    const own = membersOf(store, task).map(({ task: { member } }) => member?.run === task.run.generation && member.nth)
    return done?.filter((index) => !own.includes(index))
  }

  /**
   * Reads the items of a map. Returns the indexes of items that earlier runs completed; undefined if the ledger is
   * incomplete.
   */
  async #readLedger(handle: TaskHandle, team: ItemsPlan): Promise<readonly number[] | undefined> {
    const rows = await (await this.#ports.ledgers()).read(team.file)
    if (!isWhole(rows, team)) return undefined
    const valid = rows.filter(({ state }) => state === "valid")
    handle.items = rows.map(({ item }) => item)
    handle.rowHashes = new Map(valid.map((row) => [row.index, hashOf(row)]))
    return valid.map(({ index }) => index)
  }

  /** Writes a member's row to the ledger when the member begins or is closed, while its map runs. */
  note(member: Task): void {
    const { store, background } = this.#services
    const { of = "", nth = 0 } = member.member ?? {}
    const handle = store.handle(of)
    const { group } = handle?.task ?? {}
    if (group?.kind !== "each" || handle?.run?.stage !== "supervising") return
    const noting = (async () => {
      const ledgers = await this.#ports.ledgers()
      const row = await this.#rowOf(member, nth, handle.items?.[nth])
      handle.rowHashes?.set(nth, hashOf(row))
      await ledgers.append(group.file, row).catch((error) => {
        // A lost row does no harm: the whole ledger is written again at the end.
        this.#services.opencode.log("warn", "a row could not be written", { task: of, error: messageOf(error) })
      })
    })()
    handle.creatingMembers = Promise.allSettled([handle.creatingMembers, noting])
    background.run("write a row", () => noting)
  }

  async #rowOf(given: Task, index: number, item: unknown): Promise<ItemRow> {
    const task = this.#services.store.get(given.id) ?? given
    const of = { task: task.id, session: task.sessionID }
    if (isActive(task)) return { index, item, state: "running", ...of }
    const { usage, value } = task.outcome ?? (NO_FIGURES as Outcome)
    const figures = { ...of, cost: usage.cost, ms: elapsed(task, 0) }
    if (task.status !== "completed") return { index, item, state: "failed", reason: failureText(task), ...figures }
    const { text } = await this.#ports.answers.of(task)
    const asked = value && value.asked > 1 ? { asked: value.asked } : {}
    return { index, item, state: "valid", value: value?.valid ? JSON.parse(text) : text, ...asked, ...figures }
  }

  /** Writes the ledger with one row for each item, in order, before the parent gets the notification. */
  async #closeItems(task: Task, plan: ItemsPlan): Promise<ItemsResult> {
    const members = membersOf(this.#services.store, task)
    const cost = members.reduce(
      (sum, { task: member }) => sum + member.earlier.usage.cost + (member.outcome?.usage.cost ?? 0),
      0,
    )
    const ledgers = await this.#ports.ledgers()
    const handle = this.#services.store.handle(task.id)
    const known = new Map((await ledgers.read(plan.file)).map((row) => [row.index, row]))
    const latest = new Map(members.map(({ task: member }) => [member.member?.nth, member]))
    // Every item gets a row even if the ledger is damaged. The record of an item's member counts more than the row.
    const rows = await Promise.all(
      Array.from({ length: plan.total }, async (_none, index): Promise<ItemRow> => {
        const row = known.get(index)
        const member = latest.get(index)
        const item = handle?.items ? handle.items[index] : (row?.item ?? null)
        const isOver = row?.state === "valid" || row?.state === "failed"
        // Without `noted`, this process wrote no rows: the row comes from an earlier process and is trusted.
        const isOurs = row && (!handle?.rowHashes || handle.rowHashes.get(index) === hashOf(row))
        if (isOver && isOurs && (member === undefined || row.task === member.id)) return row
        if (member) return this.#rowOf(member, index, item)
        if (handle?.rowHashes?.has(index))
          return { index, item, state: "failed", reason: "Its row was changed by another hand." }
        const wasRunning = row?.state === "running" && isOurs
        return wasRunning
          ? { ...row, state: "failed", reason: "It was interrupted." }
          : { index, item, state: "not begun" }
      }),
    )
    await ledgers.write(plan.file, rows)
    if (handle) handle.items = handle.rowHashes = undefined
    const unmerged = members.filter(({ task: member }) => member.status === "completed" && isUnmerged(member)).length
    return itemsResult(plan, rows, cost, unmerged)
  }

  /**
   * Stores the winner's value in a file under the group's id. Values of tries that lost are not stored in the project.
   */
  async #valueOf(task: Task, winner: Task): Promise<Value | undefined> {
    const { value } = winner.outcome ?? {}
    if (!value?.valid) return value
    const file = await this.#fileOf(task, winner)
    return { ...value, ...(file && { file }) }
  }

  async #fileOf(task: Task, winner: Task): Promise<string | undefined> {
    try {
      const { text } = await this.#ports.answers.of(winner)
      return await this.#ports.keep(task.id, text)
    } catch (error) {
      // Without the file the value stays valid: readers take it from the winner's session.
      const about = { task: task.id, error: messageOf(error) }
      this.#services.opencode.log("warn", "a value could not be read to be kept in a file", about)
      return undefined
    }
  }

  async #archiveTries(task: Task, plan: TriesPlan, merging: Merging | undefined) {
    const members = membersOf(this.#services.store, task)
    const chosen = members.find(({ task: { id } }) => id === chosenIn(plan))?.task
    const { refs, found, check: checked } = await this.#ports.groupArchive.archive(task, merging)
    const { filesChanged = [], moreFiles = 0 } = chosen?.outcome ?? {}
    const receipt = receiptOf(plan, chosen)
    const value = chosen && (await this.#valueOf(task, chosen))
    return {
      found: {
        ...found,
        ...(receipt && { receipt }),
        ...(value && { value }),
        filesChanged,
        moreFiles,
        group: triesResult(plan, members, ({ id }) => refs.get(id)),
      },
      ...(checked && { check: checked }),
    }
  }
}

/** Adds the check that the winner has passed. A crash may have lost this check from the winner's own record. */
function receiptOf({ passed }: TriesPlan, chosen: Task | undefined): Receipt | undefined {
  const { receipt } = chosen?.outcome ?? {}
  return passed && !receipt?.check ? { ...(receipt ?? NO_RECEIPT), check: passed } : receipt
}

const hashOf = (row: ItemRow): string => createHash("sha256").update(JSON.stringify(row)).digest("hex")

const isWhole = (rows: readonly ItemRow[], { total }: ItemsPlan): boolean =>
  rows.length === total && rows.every(({ index, item }, at) => index === at && item !== undefined)
