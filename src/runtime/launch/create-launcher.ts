import type { Services } from "../parts.ts"
import { type AdmissionPorts, Scheduler } from "../scheduler.ts"
import { Launcher, type LauncherPorts } from "./launcher.ts"
import { Queue, type QueuePorts } from "./queue.ts"
import { type ResumingPorts, TaskResumer } from "./resuming.ts"

export type Launching = ReturnType<typeof launchingOf>

type LaunchingPorts = Omit<QueuePorts & LauncherPorts & ResumingPorts & AdmissionPorts, "queue" | "scheduler">

/** Creates the parts that start and resume runs for agents. */
export function launchingOf(services: Services, ports: LaunchingPorts) {
  const scheduler = new Scheduler(services, ports)
  const queue = new Queue(services, { ...ports, scheduler })
  const begins = { ...ports, queue, scheduler }
  return { scheduler, queue, launcher: new Launcher(services, begins), resuming: new TaskResumer(services, begins) }
}
