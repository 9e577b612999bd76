import { recentRuns } from "../../core/bill.ts"
import { CallError, messageOf } from "../../core/errors.ts"
import type { GroupAtWork, GroupWork, MemberPlan, Runtime } from "../../core/feature.ts"
import { chosenIn, type Group } from "../../core/group.ts"
import { newTaskID } from "../../core/ids.ts"
import type { GroupStep } from "../../core/members.ts"
import { withSchema } from "../../core/outcome.ts"
import type { CheckResult } from "../../core/receipt.ts"
import type { ActiveRun } from "../../core/run/active-run.ts"
import { NO_FIGURES, type Outcome, type Run, type Task, type TaskDraft } from "../../core/task.ts"
import type { Answers } from "../answers.ts"
import { deniedAt, rulesFor } from "../launch/checks.ts"
import { type Queue, sweepUp } from "../launch/queue.ts"
import type { Services } from "../parts.ts"
import type { Merging } from "../places/places.ts"
import { filesIn, type ResultFolder } from "../result-folder.ts"
import type { Scheduler } from "../scheduler.ts"
import type { GroupArchive } from "./group-archive.ts"
import { membersOf } from "./plans.ts"

export type MemberPorts = {
  readonly workOf: Groups["workOf"]
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
    const { store, clock, groupKindOf } = this.#services
    const freeSlots = this.#ports.launching().scheduler.freeSlotsFor(task)
    const groupState = { coming, done, generation, freeSlots, now: clock.now() }
    const step = task.group && groupKindOf(task)?.next(task.group, membersOf(store, task), groupState)
    return step ?? { begin: [] }
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
    const kind = this.#services.groupKindOf(task)
    if (!group || !kind) return
    const plan = kind.member({ ...task, group }, nth)
    const { groupArchive, began } = this.#ports
    const { queue, scheduler } = this.#ports.launching()
    const { opencode, store, background } = this.#services
    const draft = this.#draft(task, group, nth, plan)
    const { caller = "", under = "" } = draft.member ?? {}
    if (draft.place)
      await (kind.picksOne ? groupArchive.share(draft, task.id) : groupArchive.capture(draft, draft.place.folder))
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
    const group = await this.#ports.workOf(task)
    return withSchema(group?.work.prompt?.(group.atWork, text, nth) ?? text, task.run.schema)
  }

  #draft(task: Task, group: Group, nth: number, { name, isBelowGroup, ...own }: MemberPlan): TaskDraft {
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
  readonly results: () => Promise<ResultFolder>
  readonly keep: Runtime["keep"]
  /** Resolves when a task's last end is closed. */
  readonly closed: (taskID: string) => Promise<void>
}

type WorkAtGroup = { readonly work: GroupWork; readonly atWork: GroupAtWork }

/** Lets the kinds of groups do their work beside the runs of the members. */
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
    const group = await this.workOf(task, merging)
    const { found, ...checked } = group ? await group.work.finish(group.atWork) : { found: {} }
    const unanswered = membersOf(this.#services.store, task).flatMap(
      ({ task: member }) => member.outcome?.unanswered ?? [],
    )
    return { found: { ...found, ...(unanswered.length > 0 && { unanswered }) }, ...checked }
  }

  /** Called before a run. Returns the indexes of members that earlier runs have completed. */
  async open(task: Task): Promise<readonly number[]> {
    const group = this.#services.store.handle(task.id) && (await this.workOf(task))
    return (await group?.work.open?.(group.atWork)) ?? []
  }

  /**
   * Called after a restart. Returns the indexes of members that earlier runs have completed; undefined if the group
   * cannot continue.
   */
  async reopen(task: Task): Promise<readonly number[] | undefined> {
    const group = await this.workOf(task)
    return group?.work.reopen ? group.work.reopen(group.atWork) : []
  }

  /** Called when a member begins or is closed. */
  note(member: Task): void {
    const { store, background } = this.#services
    const handle = store.handle(member.member?.of ?? "")
    if (handle?.run?.stage !== "supervising") return
    const noting = this.workOf(handle.task).then((group) => group?.work.noted?.(group.atWork, member))
    handle.creatingMembers = Promise.allSettled([handle.creatingMembers, noting])
    background.run("note a member", () => noting)
  }

  /** Work of the group's kind. Undefined for any other task. */
  async workOf(task: Task, merging?: Merging): Promise<WorkAtGroup | undefined> {
    const { group: plan } = task
    const { store, opencode } = this.#services
    const work = await this.#services.groupKindOf(task)?.work()
    if (!work || !plan) return undefined
    const { groupArchive, answers, results, keep } = this.#ports
    const atWork: GroupAtWork = {
      task,
      plan,
      memory: store.handle(task.id) ?? {},
      files: filesIn(results),
      members: () => membersOf(store, task),
      answer: async (member) => (await answers.of(member)).text,
      keep: (json) => keep(task.id, json),
      archive: () => groupArchive.archive(task, merging),
      warn: (what, error) => opencode.log("warn", what, { task: task.id, error: messageOf(error) }),
    }
    return { work, atWork }
  }
}
