import type { Parts } from "../parts.ts"
import { Holding } from "./holding.ts"
import { Launcher, type LauncherPorts } from "./launcher.ts"
import { Queue, type QueuePorts } from "./queue.ts"
import { Resuming, type ResumingPorts } from "./resuming.ts"
import { Waiting } from "./waiting.ts"

export type Launching = ReturnType<typeof launchingOf>

type LaunchingPorts = Omit<QueuePorts & LauncherPorts & ResumingPorts, "queue" | "waiting" | "holding">

/** What begins the runs that agents ask for: of new tasks, and of ended ones. */
export function launchingOf(parts: Parts, ports: LaunchingPorts) {
  const waiting = new Waiting(parts, ports.conductor)
  const holding = new Holding(parts, ports.conductor)
  const queue = new Queue(parts, { ...ports, waiting, holding })
  const begins = { ...ports, queue }
  return { waiting, holding, queue, launcher: new Launcher(parts, begins), resuming: new Resuming(parts, begins) }
}
