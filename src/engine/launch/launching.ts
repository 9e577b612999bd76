import type { Parts } from "../parts.ts"
import { Holding } from "./holding.ts"
import { Launcher, type LauncherPorts } from "./launcher.ts"
import { Queue, type QueuePorts } from "./queue.ts"
import { Resuming, type ResumingPorts } from "./resuming.ts"
import { Unattended, type UnattendedPorts } from "./unattended.ts"
import { Waiting } from "./waiting.ts"

export type Launching = ReturnType<typeof launchingOf>

type LaunchingPorts = Omit<
  QueuePorts & LauncherPorts & ResumingPorts & UnattendedPorts,
  "queue" | "waiting" | "holding"
>

/** All that begins runs: of new tasks, of ended ones and of the board's. */
export function launchingOf(parts: Parts, ports: LaunchingPorts) {
  const waiting = new Waiting(parts, ports.conductor)
  const holding = new Holding(parts, ports.conductor)
  const queue = new Queue(parts, { ...ports, waiting, holding })
  const begins = { ...ports, queue }
  const launcher = new Launcher(parts, begins)
  const resuming = new Resuming(parts, begins)
  return { waiting, holding, queue, launcher, resuming, unattended: new Unattended(parts, begins) }
}
