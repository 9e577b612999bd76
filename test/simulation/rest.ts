import { type Ask, elapsed, hasPendingNotification, isActive, type Task } from "../../src/core/task.ts"
import { FAR } from "./far.ts"
import { FULL, STEP_USD } from "./kinds.ts"
import { isToldAs, says, type Watch } from "./watch.ts"
import type { World } from "./world.ts"

/** What the fake OpenCode's compaction comes to. */
const SUMMARY = "what was said so far, in short"
const MINUTE = 60_000
/** Longest time that a run which was interrupted at its limit has for its last word, and what closing it may take. */
const OVERTIME_MS = 75_000
/** Part of its time limit after which a run may be asked for its last word. */
const SOONEST = 0.6

/** Nothing goes wrong any more, and time passes until all there was to do has been done; then looks at what came of it. */
export async function rest(world: World): Promise<void> {
  await calm(world)
  // A parent may have been asked to work on and on more than once.
  for (let left = 10; left > 0; left--) {
    for (const { opencode, parent } of [world.rig, world.other])
      opencode.conclude(parent, { text: "the parent is done" })
    answerUsers(world)
    await world.clock.advance(MINUTE / 10)
  }
  for (const rig of [world.other, world.rig]) world.track("be ready", rig.manager.ready(world.parent), rig)
  await world.clock.advance(10 * MINUTE)
  // What another machine, or a process that died, had parked goes on when its lease is over.
  const isUnsettled = ({ manager }: typeof world.rig) =>
    manager.parts.reports.list().some(({ task }) => isActive(task) || hasPendingNotification(task))
  if ([world.rig, world.other].some(isUnsettled)) await world.clock.advance(10 * MINUTE)
  // A run whose lease is over by now may have left its session to its user.
  answerUsers(world)
  await world.clock.advance(MINUTE)
  if (world.opencode.isDead) return
  world.watch.check()
  const { watch, tasks } = world
  for (const task of tasks) checkTask(world, task)
  checkWakes(world)
  checkWords(world)
  await checkQuiet(world)
  checkMoney(world)
  world.bursar?.checkBill()
  world.track("sweep", world.manager.parts.archive.sweep("/project"))
  await world.rig.settle()
  // A sweep writes records, whose events may hold a user's request that was not heard of.
  if (isUnsettled(world.rig)) await world.clock.advance(10 * MINUTE)
  if (world.places.open.length > 0) watch.breach(`places were left open: ${world.places.open}`)
  checkFar(world)
}

/** What is asked in a turn that its user has begun, and that is no run's any more, waits for that user, who answers it now. */
function answerUsers({ opencode, watch, manager }: World): void {
  for (const { id, sessionID } of opencode.questions) {
    const task = manager.taskIn(sessionID)?.task
    const isUsers = task ? !isActive(task) && watch.isUsers(task) : watch.hasUser(sessionID)
    if (isUsers) opencode.answer(id)
  }
  // A call of their turn that never runs is stopped by them, too: no run of ours waits for it.
  for (const sessionID of [...opencode.activityNow.keys()]) {
    const task = manager.taskIn(sessionID)?.task
    if (task && !isActive(task) && watch.isUsers(task)) opencode.conclude(sessionID, { text: "done" })
  }
}

async function calm(world: World): Promise<void> {
  const { rig, other } = world
  world.meets = () => undefined
  world.eventMeets = () => undefined
  world.provider.open()
  world.far?.answer()
  if (rig.opencode.isDead) await world.restart()
  if (other.opencode.isDead) await world.restartOther()
  for (const each of [rig, other]) {
    each.timers.frozen = each.opencode.clock.frozen = false
  }
  // Nobody leaves a session undone for ever.
  for (const [sessionID, { undoneFrom }] of rig.opencode.database.sessions)
    if (undoneFrom) (sessionID === other.parent ? other : rig).opencode.redo(sessionID)
}

function checkTask(world: World, task: Task): void {
  const { watch, history } = world
  const name = history.nameOf(task.id)
  if (isActive(task)) return watch.breach(`${name} never ended: ${task.status}`)
  const { generation, startedAt = 0, timeout, parkedMs = 0, uncountedMs = 0 } = task.run
  if (!["confirmed", "none"].includes(task.delivery.state) && world.hasSession(task.parentID))
    watch.breach(`${name} was never told: ${task.delivery.state}`)
  const told = watch.told(task)
  const last = told.find(({ id }) => id === watch.noticeID(task))
  const isForgotten = watch.forgotten.has(task.id) || watch.undone.has(task.parentID)
  if (isForgotten || !world.hasSession(task.parentID)) return
  if (task.delivery.state === "confirmed" && !last) watch.breach(`${name} counts as told, and its parent has no news`)
  if (last && !isToldAs(task, last.visible)) watch.breach(`${name} is ${task.status} and was told as ${last.visible}`)
  // A resume that comes before the run before it was told takes the place of that run's record: a crash just then
  // loses what its caller knows already.
  const right = watch.restarts > 0 ? told.length <= generation + 1 : told.length === generation + 1
  if (!right) watch.breach(`${name} was told of ${told.length} runs of ${generation + 1}`)
  if (last) checkAnswer(world, task, last.hidden)
  const took = elapsed(task, 0)
  // A call that takes long may be what makes its session: that time counts. Near its end it is asked for its last word,
  // and may say that at once.
  if (task.outcome?.reason?.code === "timeout" && took < timeout * SOONEST)
    watch.breach(`${name} ended at its time limit of ${timeout} after ${took} ms`)
  // Nobody looks after what goes on elsewhere, or what a dead process has left, before the lease of its owner is over.
  const isUnwatched = world.endOptions.strangers && (task.place?.kind === FAR || watch.restarts > 0)
  // A sleep while its session was made, which nobody noticed, counts.
  const unnoticed = Math.max(0, watch.slept - (uncountedMs - parkedMs))
  if (
    timeout > 0 &&
    startedAt > 0 &&
    took > timeout + OVERTIME_MS + watch.held + watch.dead + unnoticed &&
    !isUnwatched
  )
    watch.breach(`${name} ran for ${took} ms with a limit of ${timeout}`)
}

/** No summary is an answer, and none takes the place of one that had ended before it. */
function checkAnswer({ watch, history, opencode }: World, task: Task, told: string): void {
  const name = history.nameOf(task.id)
  if (told.includes(SUMMARY)) watch.breach(`${name} was told with a summary as its answer`)
  const isUnbegun = task.outcome?.reason?.text.includes("did not begin to answer")
  if (isUnbegun && watch.rewritten.has(task.id)) watch.breach(`${name} has not followed its new prompt`)
  const messages = opencode.database.sessions.get(task.sessionID)?.messages ?? []
  const since = messages.findIndex(({ id }) => id === task.run.promptID)
  let isFull = false
  // An answer that does not read its user's latest words is none to them; what follows the compaction is.
  let asked: string[] = []
  for (const message of since < 0 ? [] : messages.slice(since)) {
    const isByOpencode = message.parts.some(
      (part) => part.type === "compaction" || (part.type === "text" && part.continues),
    )
    if (message.role === "user") asked = isByOpencode ? [...asked, message.id] : [message.id]
    if (message.role === "user" && !isByOpencode) isFull = false
    isFull ||= message.finish === "stop" && says(message, FULL) && asked.includes(message.parentID ?? "")
  }
  const answer = told.includes("You have fetched its answer already.") ? watch.fetched.get(task.id) : told
  // Of an answer that could not be read, nothing is told.
  const isUntold = !told.includes("<task_output>")
  if (isFull && task.status === "completed" && answer !== undefined && !isUntold && !answer.includes(FULL))
    watch.breach(`${name} had answered before its session was compacted, and was told otherwise`)
}

/** What is to wake the parent has done so, unless its user wants quiet. */
function checkWakes(world: World): void {
  const { watch, parent, history, endOptions } = world
  if (watch.restarts > 0 || endOptions.options.wake === "never" || endOptions.strangers) return
  if (watch.isSilent(parent) || watch.undone.has(parent) || !world.hasSession(parent)) return
  if (watch.stoppedLate.has(parent)) return
  const { messages } = world.opencode.stored(parent)
  const lastRead = messages.findLastIndex(({ role, id }) => role === "assistant" || id === watch.readBy(parent))
  for (const task of world.tasks) {
    if (task.parentID !== parent || !wakes(task, watch)) continue
    const told = messages.findIndex(({ id }) => id === watch.noticeID(task))
    if (told > lastRead) watch.breach(`the news of ${history.nameOf(task.id)} has not woken the parent`)
  }
}

const QUIET: readonly (string | undefined)[] = ["cancelled", "parent-ended", "after"]

const wakes = (task: Task, watch: Watch): boolean =>
  !QUIET.includes(task.outcome?.reason?.code) && !watch.waitedFor.has(task.id) && !watch.forgotten.has(task.id)

/** A word that a task was told has been answered, where the run came to its end by itself. */
function checkWords(world: World): void {
  for (const { taskID, generation, text } of world.watch.words) {
    const task = world.task(taskID)
    if (!task || task.run.generation !== generation || task.status !== "completed") continue
    if (!world.hasSession(task.sessionID) || world.watch.undone.has(task.sessionID)) continue
    const { messages } = world.opencode.stored(task.sessionID)
    const said = messages.findLastIndex((message) => says(message, text))
    const name = world.history.nameOf(taskID)
    if (said < 0) world.watch.breach(`${name} was told "${text}", which is nowhere`)
    else if (!messages.slice(said).some(({ role, finish }) => role === "assistant" && finish !== undefined))
      world.watch.breach(`${name} was told "${text}" and never read it`)
  }
}

/** Nothing goes on: no timer, no promise, no turn, no question. */
async function checkQuiet(world: World): Promise<void> {
  const { watch, rig, other, history } = world
  for (const each of [rig, other]) {
    const who = each === rig ? "the process" : "the other process"
    if (each.timers.pending > 0) watch.breach(`${each.timers.pending} timers of ${who} are left`)
    let isSettled = false
    void each.manager.parts.background.idle().then(() => {
      isSettled = true
    })
    await each.settle()
    if (!isSettled) watch.breach(`something of ${who} is still under way`)
    // A turn of its user may hang.
    for (const [session] of each.opencode.activityNow)
      if (each.opencode.database.sessions.has(session) && !watch.isUsersTurn(session) && !watch.crossed.has(session))
        watch.breach(`${history.nameOf(session)} is still at work`)
    for (const ask of watch.lostQuestion ? [] : each.opencode.questions)
      if (isRuns(each.manager.taskIn(ask.sessionID)?.task, ask))
        watch.breach(`a question of ${history.nameOf(ask.sessionID)} is still open`)
    const errors = each.errors().filter((text) => !text.includes("OpencodeError"))
    if (errors.length > 0) watch.breach(`errors were logged: ${errors}`)
    const elsewhere = each.manager.list(rig.parent).filter(({ task }) => isActive(task))
    if (elsewhere.length > 0) watch.breach(`${who} thinks that ${history.nameOf(elsewhere[0]?.task.id)} goes on`)
  }
  if (world.open.length > 0) watch.breach(`calls never came back: ${world.open.map(({ what }) => what)}`)
}

/** Nothing of ours goes on or lies on the other machine. */
function checkFar({ far, watch, history, tasks }: World): void {
  if (!far) return
  for (const [session] of far.there.activityNow) watch.breach(`${history.nameOf(session)} is still at work there`)
  // What could not be fetched for another reason than lost contact is fetched with its merge.
  const isFetchable = (id: string) =>
    !tasks.some((task) => task.id === id && task.outcome?.note?.includes("could not be"))
  for (const id of far.folders.filter(isFetchable)) watch.breach(`the folder of ${history.nameOf(id)} is still there`)
}

/** Asked by the run, and not in a turn of its user's before that. */
const isRuns = (task: Task | undefined, { askedAt }: Ask): boolean =>
  task?.run.startedAt !== undefined && askedAt >= task.run.startedAt

/** A budget is passed by the steps under way at most. */
function checkMoney(world: World): void {
  const { maxCostPerSession = 0 } = world.endOptions.options
  // On another machine it binds when it is looked at.
  if (maxCostPerSession === 0 || world.watch.restarts > 0 || world.watch.lostEvents || world.far) return
  const spent = world.manager.spentBy(world.parent).session.cost
  // The step in which it is at work, and that of its last word.
  const most = maxCostPerSession + world.launches * 2 * STEP_USD
  if (spent > most + 1e-9) world.watch.breach(`$${spent} were spent of $${maxCostPerSession}`)
}

/** Settles what a step of a life has caused, and lets calls go on by `release`. False where a promise was broken. */
export async function settleStep(world: World, release: () => void): Promise<boolean> {
  await world.rig.settle()
  if (world.opencode.isDead) await world.restart()
  release()
  world.watch.check()
  return world.watch.breaches.length === 0
}

/** Ends a life: calls are no longer held, and all comes to rest. */
export async function endLife(world: World): Promise<void> {
  world.meets = () => undefined
  world.watch.letGo()
  await rest(world)
}
