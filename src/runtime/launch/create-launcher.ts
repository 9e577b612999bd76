import type { Parts } from "../parts.ts"
import { type AdmissionPorts, Scheduler } from "../scheduler.ts"
import { Launcher, type LauncherPorts } from "./launcher.ts"
import { Queue, type QueuePorts } from "./queue.ts"
import { Resuming, type ResumingPorts } from "./resuming.ts"

export type Launching = ReturnType<typeof launchingOf>

type LaunchingPorts = Omit<QueuePorts & LauncherPorts & ResumingPorts & AdmissionPorts, "queue" | "scheduler">

/** Creates the parts that start and resume runs for agents. */
export function launchingOf(parts: Parts, ports: LaunchingPorts) {
  const scheduler = new Scheduler(parts, ports)
  const queue = new Queue(parts, { ...ports, scheduler })
  const begins = { ...ports, queue, scheduler }
  return { scheduler, queue, launcher: new Launcher(parts, begins), resuming: new Resuming(parts, begins) }
}
