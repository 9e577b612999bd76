import { Holding } from "../../features/shared-cache/warm-up.ts"
import type { Parts } from "../parts.ts"
import { Waiting } from "./dependencies.ts"
import { Launcher, type LauncherPorts } from "./launcher.ts"
import { Queue, type QueuePorts } from "./queue.ts"
import { Resuming, type ResumingPorts } from "./resuming.ts"

export type Launching = ReturnType<typeof launchingOf>

type LaunchingPorts = Omit<QueuePorts & LauncherPorts & ResumingPorts, "queue" | "waiting" | "holding">

/** What begins the runs that agents ask for: of new tasks, and of ended ones. */
export function launchingOf(parts: Parts, ports: LaunchingPorts) {
  const waiting = new Waiting(parts, ports.dispatcher)
  const holding = new Holding(parts, ports.dispatcher)
  const queue = new Queue(parts, { ...ports, waiting, holding })
  const begins = { ...ports, queue }
  return { waiting, holding, queue, launcher: new Launcher(parts, begins), resuming: new Resuming(parts, begins) }
}
