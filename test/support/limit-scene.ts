import type { Task } from "../../src/core/task.ts"
import type { Reply } from "./model.ts"
import { Rig, type RigOptions } from "./rig.ts"

/** A provider at its limit, without a real OpenCode. */

export const settings = { maxConcurrentTasks: 10, maxLaunchesPerMinute: 0 }

export const limited = (more = "") => ({ status: 429, body: { error: { message: `Rate limit reached.${more}` } } })

type Limit = { readonly bucket?: number; readonly shutMs: number; readonly tells?: boolean }

/** A provider that refuses for a time, once it has answered so many requests, and says when it opens if `tells`. */
export class Provider {
  readonly rig: Rig
  requests = 0
  refused: number[] = []
  left: number
  #closedUntil = 0

  constructor(
    { bucket = 0, shutMs, tells = true }: Limit,
    options: RigOptions["options"] = settings,
    places: Pick<RigOptions, "worktrees" | "kind"> = {},
  ) {
    this.rig = new Rig({ options, ...places })
    this.left = bucket
    this.rig.script(({ sessionID, toolResults }) => {
      if (sessionID === this.rig.parent) return undefined
      this.requests++
      const now = this.rig.clock.now()
      if (now < this.#closedUntil || this.left-- <= 0) {
        if (now >= this.#closedUntil) this.#closedUntil = now + shutMs
        this.left = bucket
        this.refused.push(now)
        return limited(tells ? ` Try again in ${Math.ceil((this.#closedUntil - now) / 1000)}s` : "")
      }
      return toolResults.length < 2 ? { tools: [{ name: "read", args: {} }] } : { text: "done" }
    })
  }

  launchAll(count: number) {
    const launches = Array.from({ length: count }, (_, at) => this.rig.launch({ prompt: `FIND ${at}`, batch: "night" }))
    return Promise.all(launches) as Promise<[Task, ...Task[]]>
  }
}

export const isParkedNow = (rig: Rig, id: string, parent?: string) =>
  rig.view(id, parent).phase?.startsWith("parked") === true

/** A provider at its limit, and so many tasks that are parked by now. */
export async function parkedTasks(count: number, ...given: ConstructorParameters<typeof Provider>) {
  const provider = new Provider(...given)
  const { rig } = provider
  const tasks = await provider.launchAll(count)
  await rig.clock.until(() => tasks.every(({ id }) => isParkedNow(rig, id)))
  return { provider, rig, tasks, task: tasks[0], id: tasks[0].id }
}

export const parkedTask = (...given: ConstructorParameters<typeof Provider>) => parkedTasks(1, ...given)

/** All but the parent get this answer from now on. */
export const answerAll = (rig: Rig, reply: Reply) =>
  rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : reply))
