import { CallError, messageOf } from "../core/errors.ts"
import type { GroupAtWork, GroupWork, MemberPlan, Runtime } from "../core/feature.ts"
import { chosenIn, type Group, type GroupStep, plannedIn } from "../core/group.ts"
import { withSchema } from "../core/outcome.ts"
import type { CheckResult } from "../core/receipt.ts"
import type { ActiveRun } from "../core/run/active-run.ts"
import type { MachineCommand } from "../core/run/steps.ts"
import { recentRuns } from "../core/spending.ts"
import {
  type Model,
  modelOf,
  NO_FIGURES,
  newTaskID,
  type Outcome,
  type Run,
  type Task,
  type TaskDraft,
} from "../core/task.ts"
import type { Answers, ResultFolder } from "./answers.ts"
import type { Allowance, CostLedger } from "./budgets.ts"
import type { Dispatcher } from "./dispatcher.ts"
import { deniedAt, rulesFor } from "./launch/checks.ts"
import { type Queue, sweepUp } from "./launch/queue.ts"
import { CaptureError } from "./places/place.ts"
import type { Merging, Places } from "./places/places.ts"
import type { Scheduler } from "./scheduler.ts"
import type { Services } from "./services.ts"

export type GroupPorts = {
  readonly places: Places
  readonly ledger: Pick<CostLedger, "ofTask">
  readonly allowance: Pick<Allowance, "refusalIn">
  readonly answers: Answers
  readonly results: ResultFolder
  readonly keep: Runtime["keep"]
  readonly randomID: () => string
  /** Parts that are created after this object, so they are asked for at the call. */
  readonly others: () => { readonly queue: Queue; readonly scheduler: Scheduler; readonly dispatcher: Dispatcher }
}

type NewMember = Extract<MachineCommand, { do: "create member" }>
type WorkAtGroup = { readonly work: GroupWork; readonly atWork: GroupAtWork }

/**
 * Creates members of groups, and lets the kinds of groups do their work. A member runs like any other task, but only the
 * group learns how it ended.
 */
export class Groups {
  readonly #services: Services
  readonly #ports: GroupPorts

  constructor(services: Services, ports: GroupPorts) {
    this.#services = services
    this.#ports = ports
  }

  /**
   * The next step of a group, as its feature decides now. Near a budget no member begins, and the group ends with its
   * last one.
   */
  next(task: Task, { generation, creatingMembers: coming, done }: ActiveRun): GroupStep {
    const { store, clock, groupKindOf } = this.#services
    const kind = groupKindOf(task)
    if (!task.group || !kind) return { begin: [] }
    const freeSlots = this.#ports.others().scheduler.freeSlotsFor(task)
    const members = store.membersOf(task)
    const step = kind.next(task.group, members, { coming, done, generation, freeSlots, now: clock.now() })
    const why = step.begin.length > 0 ? this.#ports.allowance.refusalIn(task) : undefined
    if (why === undefined) return step
    const isAtWork = coming.length > 0 || members.some(({ closed }) => !closed)
    const { many } = kind.noun
    const isFirst = members.length === 0 && done.length === 0
    const text = `${isFirst ? `None of its ${many} began` : `Its other ${many} did not begin`}: ${why}.`
    return { begin: [], ...(!isAtWork && { ending: { type: "failed", reason: { code: "budget", text } } }) }
  }

  /**
   * Models that a run of the task asks, in their order: of a group, those of its members from the next one on. None where
   * OpenCode chooses the model.
   */
  modelsOf(task: Task, generation = task.run.generation): readonly Model[] {
    const { store, clock, groupKindOf } = this.#services
    const { group } = task
    const kind = groupKindOf(task)
    const chosen = store.get(chosenIn(group) ?? "")
    if (!group || !kind || chosen) {
      // A later run begins with the task's own model, not with one that replaced it.
      const model = chosen?.model ?? (generation > task.run.generation ? task.model : modelOf(task))
      return model ? [model] : []
    }
    const closed = store.membersOf(task).filter((member) => member.closed)
    const state = { coming: [], done: [], generation, freeSlots: 1, now: clock.now() }
    const [next = 0] = kind.next(group, closed, state).begin
    // All items have the task's own model.
    const many = kind.picksOne ? plannedIn(group) - next : 1
    const numbers = Array.from({ length: many }, (_none, nth) => next + nth)
    return numbers.flatMap((nth) => kind.member({ ...task, group }, nth).model ?? [])
  }

  /**
   * Creates a member and starts or queues it. Returns what the member waits for where it cannot be created yet. Rejects
   * where that fails, and leaves no session behind.
   */
  make(task: Task, member: NewMember): Promise<string | undefined> {
    const winner = this.#services.store.get(chosenIn(task.group) ?? "")
    const making = winner ? this.#again(task, winner, member.text) : this.#make(task, member)
    const handle = this.#services.store.handle(task.id)
    if (handle) handle.creatingMembers = Promise.allSettled([handle.creatingMembers, making])
    return making
  }

  async #make(task: Task, { nth, text, preface }: NewMember): Promise<string | undefined> {
    const { group } = task
    const kind = this.#services.groupKindOf(task)
    if (!group || !kind) return undefined
    const plan = kind.member({ ...task, group }, nth)
    const { queue, scheduler } = this.#ports.others()
    const { opencode, store, background } = this.#services
    const draft = this.#draft(task, group, nth, plan)
    const { caller = "", under = "" } = draft.member ?? {}
    const behind = draft.place && (await this.#capture(task, draft, draft.place.folder))
    if (behind !== undefined) return behind
    const reserved = scheduler.reserve({ ...draft, sessionID: "" })
    try {
      const { sessionID: _none, ...made } = reserved
      const { agent, model, depth } = made
      const rules = rulesFor(this.#services, await opencode.parent(caller), deniedAt(this.#services, depth))
      const title = `${draft.description} (@${agent} background agent)`
      const { isModelNamed } = store.handle(task.id) ?? {}
      const isNamed = isModelNamed || plan.model !== task.model
      const session = { parentID: under, title, agent, model, isModelNamed: isNamed, rules }
      const prompt = preface + (await this.#promptOf(task, nth, text))
      const sessionID = await opencode.createSession(session, made)
      // No await may come between this test and the begin: the end of the group stops only members that have begun.
      if (!store.runs(task)) {
        await opencode.deleteSession(sessionID)
        throw new CallError("it was stopped")
      }
      const part = { ...made, sessionID }
      await queue.begin(part, prompt)
      this.note(part)
      return undefined
    } catch (error) {
      scheduler.release(reserved)
      if (!store.get(draft.id)) background.run("sweep up after a part", () => sweepUp(this.#services, draft.id, under))
      throw error
    }
  }

  /**
   * Saves the files that a member begins with. Returns what it waits for where they are being changed. The first member
   * does not wait: the group's caller may be the one who changes them, and reads of it at once.
   */
  async #capture(task: Task, draft: TaskDraft, folder: string): Promise<string | undefined> {
    const { places } = this.#ports
    const { store, groupKindOf } = this.#services
    try {
      await (groupKindOf(task)?.picksOne ? places.share(draft, task.id) : places.capture(draft, folder))
      return undefined
    } catch (error) {
      const { behind } = error instanceof CaptureError ? error : {}
      const isFirst = store.membersOf(task).every(({ task: { member } }) => member?.run !== task.run.generation)
      if (behind === undefined || isFirst) throw error
      return behind
    }
  }

  /** Resumes the member that an earlier run has chosen. */
  async #again(task: Task, winner: Task, text: string): Promise<undefined> {
    const { opencode, store, clock } = this.#services
    const noun = this.#services.groupKindOf(task)?.noun.one
    await this.#ports.others().dispatcher.over(winner)
    if (!(await opencode.session(winner.sessionID)))
      throw new CallError(`the session of the ${noun} that had won, ${winner.sessionID}, no longer exists`)
    await this.#ports.places.giveBack(winner, task.id)
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
    if (!change) throw new CallError(`the ${noun} that had won is at work already`)
    await this.#ports.others().queue.enqueue(change.after, withSchema(text, run.schema))
  }

  async #promptOf(task: Task, nth: number, text: string): Promise<string> {
    const group = await this.#workOf(task)
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

  /** Closes a group's run and returns its result. With `merging`, the group's work is merged. */
  async archive(task: Task, merging: Merging | undefined): Promise<{ found: Partial<Outcome>; check?: CheckResult }> {
    const { store } = this.#services
    await store.handle(task.id)?.creatingMembers
    for (const { task: member } of store.membersOf(task)) await this.#ports.others().dispatcher.closed(member.id)
    const group = await this.#workOf(task, merging)
    const { found, ...checked } = group ? await group.work.finish(group.atWork) : { found: {} }
    const unanswered = store.membersOf(task).flatMap(({ task: member }) => member.outcome?.unanswered ?? [])
    return { found: { ...found, ...(unanswered.length > 0 && { unanswered }) }, ...checked }
  }

  /**
   * Called before a run. Returns the numbers of members that earlier runs have completed. Throws a `CallError` where
   * nobody can know them.
   */
  async open(task: Task): Promise<readonly number[]> {
    const { store, groupKindOf } = this.#services
    const group = store.handle(task.id) && (await this.#workOf(task))
    if (!group) return []
    const { work, atWork } = group
    if (task.run.generation === 0) await work.open?.(atWork)
    const done = task.run.generation > 0 && work.reopen ? await work.reopen(atWork) : []
    if (done) return done
    const { noun, rows } = groupKindOf(task) ?? {}
    throw new CallError(
      `The rows of its ${noun?.many} in ${rows?.(atWork.plan)} are gone, or not whole: nobody knows what is missing. Launch a new task.`,
    )
  }

  /** Called after a restart. Returns the numbers of members that earlier runs have completed; undefined for unknown. */
  async reopen(task: Task): Promise<readonly number[] | undefined> {
    const group = await this.#workOf(task)
    const done = group?.work.reopen ? await group.work.reopen(group.atWork) : []
    const own = this.#services.store
      .membersOf(task)
      .filter(({ task: { member } }) => member?.run === task.run.generation)
    return done?.filter((nth) => own.every(({ task: { member } }) => member?.nth !== nth))
  }

  /** Called when a member begins or is closed. */
  note(member: Task): void {
    const { store, background } = this.#services
    const handle = store.handle(member.member?.of ?? "")
    if (handle?.run?.stage !== "supervising") return
    const noting = this.#workOf(handle.task).then((group) => group?.work.noted?.(group.atWork, member))
    handle.creatingMembers = Promise.allSettled([handle.creatingMembers, noting])
    background.run("note a member", () => noting)
  }

  /** Work of the group's kind. Undefined for any other task. */
  async #workOf(task: Task, merging?: Merging): Promise<WorkAtGroup | undefined> {
    const { group: plan } = task
    const { store, opencode } = this.#services
    const work = await this.#services.groupKindOf(task)?.work()
    if (!work || !plan) return undefined
    const { places, answers, results, keep, ledger } = this.#ports
    const atWork: GroupAtWork = {
      task,
      plan,
      memory: store.handle(task.id) ?? {},
      files: results,
      members: () => store.membersOf(task),
      usage: () => ledger.ofTask(task.id),
      answer: async (member) => (await answers.of(member)).text,
      keep: (json) => keep(task.id, json),
      archive: () => places.archiveGroup(task, merging),
      warn: (what, error) => opencode.log("warn", what, { task: task.id, error: messageOf(error) }),
    }
    return { work, atWork }
  }
}

/** Members have the check, guard and schema of their group. */
const verificationOf = ({ run: { check, guard, schema } }: Task): Pick<Run, "check" | "guard" | "schema"> => ({
  ...(check !== undefined && { check }),
  ...(guard && { guard }),
  ...(schema && { schema }),
})
