import { recentRuns } from "../../core/bill.ts"
import { CallError } from "../../core/errors.ts"
import type { Feature, GroupRules, MemberPlan } from "../../core/feature.ts"
import { chosenIn, type Group } from "../../core/group.ts"
import { newTaskID } from "../../core/ids.ts"
import type { GroupStep } from "../../core/members.ts"
import type { ActiveRun } from "../../core/run/active-run.ts"
import { NO_FIGURES, type Run, type Task, type TaskDraft } from "../../core/task.ts"
import { withSchema } from "../../core/value.ts"
import { deniedAt, rulesFor } from "../launch/checks.ts"
import { sweepUp } from "../launch/discard-session.ts"
import type { Queue } from "../launch/queue.ts"
import type { Parts } from "../parts.ts"
import type { Scheduler } from "../scheduler.ts"
import type { GroupArchive } from "./group-archive.ts"
import { membersOf } from "./members-of.ts"

export type MemberPorts = {
  readonly features: readonly Feature[]
  readonly groupArchive: Pick<GroupArchive, "share" | "capture" | "giveBack">
  /** Created later than this object. */
  readonly launching: () => { readonly queue: Queue; readonly scheduler: Scheduler }
  readonly randomID: () => string
  /** Called when a member works or is queued. */
  readonly began: (member: Task) => void
  /** Resolves when the task's next run may begin. */
  readonly over: (task: Task) => Promise<void>
}

/** Creates members of groups: runs like any other, whose end only the group is told. */
export class GroupMembers {
  readonly #parts: Parts
  readonly #ports: MemberPorts

  constructor(parts: Parts, ports: MemberPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** The next step of a group, as its feature decides now. */
  next(task: Task, { generation, creatingMembers: coming, done }: ActiveRun): GroupStep {
    const { store, clock } = this.#parts
    const room = this.#ports.launching().scheduler.roomFor(task)
    const course = { coming, done, generation, room, now: clock.now() }
    return this.#rulesOf(task)?.next(membersOf(store, task), course) ?? { begin: [] }
  }

  /** Creates and starts or queues a member. Rejects where that fails, without leaving a session. */
  make(task: Task, nth: number, text: string): Promise<void> {
    const winner = this.#parts.store.get(chosenIn(task.group) ?? "")
    const making = winner ? this.#again(task, winner, text) : this.#make(task, nth, text)
    const handle = this.#parts.store.handle(task.id)
    if (handle) handle.creatingMembers = Promise.allSettled([handle.creatingMembers, making])
    return making
  }

  /** Resolves when no member of this group is being created. */
  async made(taskID: string): Promise<void> {
    await this.#parts.store.handle(taskID)?.creatingMembers
  }

  async #make(task: Task, nth: number, text: string): Promise<void> {
    const { group } = task
    const plan = this.#rulesOf(task)?.member(nth)
    if (!group || !plan) return
    const { groupArchive, began } = this.#ports
    const { queue, scheduler } = this.#ports.launching()
    const { host, store, background } = this.#parts
    const draft = this.#draft(task, group, nth, plan)
    const { caller = "", under = "" } = draft.member ?? {}
    if (draft.place)
      await (plan.sharesFiles ? groupArchive.share(draft, task.id) : groupArchive.capture(draft, draft.place.folder))
    const reserved = scheduler.reserve({ ...draft, sessionID: "" })
    try {
      const { sessionID: _none, ...made } = reserved
      const { agent, model, depth } = made
      const rules = rulesFor(this.#parts, await host.parent(caller), deniedAt(this.#parts, depth))
      const title = `${draft.description} (@${agent} background agent)`
      const { isModelNamed } = store.handle(task.id) ?? {}
      const isNamed = isModelNamed || plan.model !== task.model
      const session = { parentID: under, title, agent, model, isModelNamed: isNamed, rules }
      const sessionID = await host.createSession(session, made)
      if (!store.runs(task)) {
        await host.deleteSession(sessionID)
        throw new CallError("it was stopped")
      }
      const part = { ...made, sessionID }
      await queue.begin(part, await this.#promptOf(task, nth, text))
      began(part)
    } catch (error) {
      scheduler.release(reserved)
      if (!store.get(draft.id)) background.run("sweep up after a part", () => sweepUp(this.#parts, draft.id, under))
      throw error
    }
  }

  /** Resumes the former winner. */
  async #again(task: Task, winner: Task, text: string): Promise<void> {
    const { host, store, clock } = this.#parts
    await this.#ports.over(winner)
    if (!(await host.session(winner.sessionID)))
      throw new CallError(`the session of the try that had won, ${winner.sessionID}, no longer exists`)
    await this.#ports.groupArchive.giveBack(winner, task.id)
    if (!store.runs(task)) throw new CallError("it was stopped")
    const now = clock.now()
    const current = store.get(winner.id) ?? winner
    const generation = current.run.generation + 1
    const run: Run = {
      generation,
      promptID: host.messageID("prompt", winner.id, generation, now),
      createdAt: now,
      timeout: task.group?.timeout ?? 0,
      ...askedOf(task),
      recent: recentRuns(current, now),
    }
    const by = winner.member && { member: { ...winner.member, run: task.run.generation } }
    const change = store.apply(winner.id, { type: "resumed", run, by }, now)
    if (!change) throw new CallError("the try that had won is at work already")
    await this.#ports.launching().queue.enqueue(change.after, withSchema(text, run.schema))
  }

  async #promptOf(task: Task, nth: number, text: string): Promise<string> {
    const { store } = this.#parts
    const isEarlier = ({ member }: Task) => (member?.nth ?? nth) < nth
    const earlier = () => membersOf(store, task).flatMap((each) => (isEarlier(each.task) ? [each.task] : []))
    const prompt = await this.#rulesOf(task)?.prompt(text, store.handle(task.id)?.items?.[nth], earlier)
    return withSchema(prompt ?? text, task.run.schema)
  }

  #rulesOf(task: Task): GroupRules | undefined {
    return this.#ports.features.flatMap(({ group }) => group?.(task) ?? [])[0]
  }

  #draft(task: Task, group: Group, nth: number, { name, sharesFiles: _files, isFar, ...own }: MemberPlan): TaskDraft {
    const { clock } = this.#parts
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
        under: isFar ? task.sessionID : parentID,
      },
      createdAt: now,
      earlier: NO_FIGURES,
      fingerprint: "",
      status: "running",
      run: {
        generation: 0,
        promptID: this.#parts.host.messageID("prompt", id, 0, now),
        createdAt: now,
        timeout: group.timeout,
        ...askedOf(task),
      },
      delivery: { state: "none" },
    }
  }
}

/** Members have the check, guard and schema of their group. */
const askedOf = ({ run: { check, guard, schema } }: Task): Pick<Run, "check" | "guard" | "schema"> => ({
  ...(check !== undefined && { check }),
  ...(guard && { guard }),
  ...(schema && { schema }),
})
