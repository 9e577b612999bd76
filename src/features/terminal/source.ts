import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import { EventReader, type RawEvent } from "../../opencode/events.ts"
import { KnownTasks, type Listeners } from "./known-tasks.ts"
import { Reading } from "./reading.ts"

export type Source = ReturnType<typeof createSource>

const EVENTS = [
  "session.status",
  "message.part.updated",
  "permission.asked",
  "permission.replied",
  "question.asked",
  "question.replied",
  "question.rejected",
] as const

/** Task data for the terminal, from session metadata and events. `deepest`: depth of tasks that are read, 0 for any. */
export function createSource(api: TuiPluginApi, listeners: Listeners = {}, deepest: () => number = () => 1) {
  const events = new EventReader()
  const known = new KnownTasks(listeners)
  const reading = new Reading(api, known, deepest)
  const on = <Type extends Parameters<typeof api.event.on>[0]>(type: Type, handle: (event: RawEvent) => void) =>
    api.event.on(type, (event) => {
      try {
        reading.heard(event as unknown as RawEvent)
        handle(event as unknown as RawEvent)
      } catch {
        // Unknown events are ignored: a throw would end the terminal.
      }
    })
  const infoOf = (event: RawEvent) => (event.properties as { info: Session }).info
  const stops = [
    on("session.created", (event) => known.take(infoOf(event), true)),
    on("session.updated", (event) => known.take(infoOf(event), true)),
    on("session.deleted", (event) => known.forget(infoOf(event).id)),
    on("server.connected", () => reading.reload()),
    ...EVENTS.map((type) =>
      on(type, (event) => {
        const heard = events.read(event, Date.now())
        if (heard) return known.hear(heard)
        // The event reader has no idle status, which also ends a retry.
        if (type === "session.status") known.calm((event.properties as { sessionID: string }).sessionID)
      }),
    ),
  ]
  return {
    load: (sessionID: string) => reading.load(sessionID),
    tasksOf: (sessionID: string) => known.tasksOf(sessionID),
    all: () => known.all(),
    cleared: () => known.cleared(),
    taskIn: (sessionID: string) => known.taskIn(sessionID),
    dispose: () => {
      for (const stop of stops) stop()
      reading.dispose()
      known.dispose()
    },
  }
}
