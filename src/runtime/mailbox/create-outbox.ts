import type { Pauser } from "../../core/feature.ts"
import { whenOf } from "../../core/pause.ts"
import type { Task } from "../../core/task.ts"
import { type Answer, compose, wantsAnswer } from "../../present/notification.ts"
import type { Answers } from "../answers.ts"
import type { Dispatcher } from "../dispatcher.ts"
import type { Services } from "../services.ts"
import { stopSession } from "../sessions.ts"
import { gatherMs, isLastNotification, mayWake, notificationFacts, withCurrentState } from "./notification-items.ts"
import { Outbox } from "./outbox.ts"

/** Time for a woken parent to send its first request before deferred records are written. */
const WOKEN_MS = 300

/** Creates the outbox. `development`: notifications carry a hidden hint. */
export function outboxOf(
  services: Services,
  development: boolean,
  answers: Answers,
  others: () => {
    readonly dispatcher: Dispatcher
    readonly pauser: Pauser | undefined
    readonly at: (time: number) => void
  },
): Outbox {
  const { opencode, clock, options, store, journal, toaster, background, stopped } = services
  return new Outbox({
    opencode,
    clock,
    stopped,
    isKnown: (id) => store.get(id) !== undefined && !store.handle(id)?.isForeign,
    isLast: (task) => isLastNotification(task, store),
    gatherMs: (task) => gatherMs(task, store),
    mayWake: (task) => mayWake(task, store),
    isBlocked: (model) => {
      const limit = model && others().pauser?.limitOf(model)
      const when = limit && whenOf(limit, clock.now())
      if (when) others().at(clock.now() + when.in)
      return limit !== undefined
    },
    silence: (parentID) => stopSession(services, parentID).soon,
    compose: async (task) => {
      await journal.takenUp
      const wanted = options.notifyAnswerChars > 0 && wantsAnswer(withCurrentState(task, store))
      const answer = wanted ? await answerTo(task, services, answers) : undefined
      return compose(
        { ...notificationFacts(task, store), groupKind: services.groupKindOf(task), answer },
        { ...options, development },
      )
    },
    recordDelivery: (task, state, handedOver) => others().dispatcher.announcing.recordDelivery(task, state, handedOver),
    drained: (parentID, woken) => {
      const flush = () => {
        if (stopped.aborted) return
        toaster.flush()
        journal.flush(parentID)
      }
      // Records and toasts wait while OpenCode starts the turn of a parent that was just woken.
      if (woken) clock.after(WOKEN_MS, flush)
      else flush()
      // The parent was not woken, but may be a task that waited for this notification: its own run may be at its end.
      const parent = store.bySession(parentID)
      if (!woken && parent) others().dispatcher.deliver(parent.id, { type: "look" })
    },
    run: (what, work) => background.run(what, work),
  })
}

/** Answer for the notification; undefined where it cannot be read now. */
async function answerTo(task: Task, { store, opencode }: Services, answers: Answers): Promise<Answer | undefined> {
  const current = store.get(task.id)
  const next = current && current.run.generation > task.run.generation ? current.run.promptID : undefined
  try {
    return await answers.ofClosed(task, next)
  } catch (error) {
    opencode.log("warn", "an answer could not be read for its notification", { task: task.id, error: String(error) })
    return undefined
  }
}
