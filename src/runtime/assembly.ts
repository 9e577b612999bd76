import { Archive } from "./archive.ts"
import { TaskCanceller } from "./cancel.ts"
import { engineOf, type ManagerPorts } from "./engine.ts"
import { EventRouter } from "./event-router.ts"
import { Launcher } from "./launch/launcher.ts"
import { TaskResumer } from "./launch/resuming.ts"
import { Reports } from "./reports.ts"
import { Requests } from "./requests.ts"

export type Assembly = ReturnType<typeof assemble>

/** Creates the engine, and the parts that only use it: the API of tools, hooks, terminal, page and board. */
export function assemble(ports: ManagerPorts, stopped: AbortSignal) {
  const engine = engineOf(ports, stopped)
  const archive = new Archive(engine)
  const launcher = new Launcher(engine)
  const resuming = new TaskResumer(engine)
  const reports = new Reports(engine, archive)
  const cancelling = new TaskCanceller(engine, archive)
  const requests = new Requests(engine, resuming, cancelling)
  const eventRouter = new EventRouter(engine, requests, cancelling)
  return { ...engine, archive, launcher, resuming, reports, cancelling, eventRouter }
}
