import type { Feature, FeatureBody, Submission } from "../core/feature.ts"
import type { Findings, Verdict } from "../core/run/steps.ts"
import type { Task } from "../core/task.ts"
import type { Merging, Places } from "./places/places.ts"
import type { Services } from "./services.ts"
import type { TaskHandle } from "./tasks/task-handle.ts"

export type VerifierPorts = {
  readonly features: readonly Feature[]
  /** Bodies of the features, by name. */
  readonly bodies: ReadonlyMap<string, FeatureBody>
  readonly places: Places
}

const NOTHING: Findings = {}

/** Asks the features that judge answers. Each can be stopped, and a run is not closed before its verifier has ended. */
export class Verifiers {
  readonly #services: Services
  readonly #ports: VerifierPorts

  constructor(services: Services, ports: VerifierPorts) {
    this.#services = services
    this.#ports = ports
  }

  /** Names of the features that judge the task's answers, in their order. */
  of(task: Task): readonly string[] {
    return this.#ports.features.flatMap(({ name, verifies }) => (verifies?.(task) ? name : []))
  }

  /** Verdict of a feature on the answer of a run that is about to complete. */
  async atEnd(
    handle: TaskHandle,
    task: Task,
    { by, text, earlier }: { readonly by: string; readonly text: string; readonly earlier: Findings },
  ): Promise<Verdict | undefined> {
    const stop = new AbortController()
    handle.stop = stop
    const judging = this.#ports.bodies.get(by)?.verify?.(task, this.#submission(task, text, earlier, stop.signal))
    handle.preparation = judging?.catch(() => {})
    return judging
  }

  /** Returns the checks for the merge of a completed task. Stopping the run stops all of them. */
  merging(handle: TaskHandle): Merging {
    const stop = new AbortController()
    const { signal } = stop
    handle.stop = stop
    this.#services.store.noticed(handle.task.id)
    const earlier = { check: handle.run?.check }
    return {
      signal,
      check: async (task, folder) => {
        const submission = this.#submission(task, "", earlier, signal, folder)
        for (const verdict of this.#verdicts(task, submission, false)) {
          const { check } = (await verdict)?.finding ?? {}
          if (check) return check
        }
        return undefined
      },
    }
  }

  /**
   * Judges, by its text alone, an answer that no process has judged. Returns the first verdict that the answer does not
   * pass, or the last verdict.
   */
  async afterCrash(task: Task, text: string): Promise<Verdict | undefined> {
    let last: Verdict | undefined
    for (const verdict of this.#verdicts(task, this.#submission(task, text, NOTHING, this.#services.stopped), true)) {
      last = (await verdict) ?? last
      if (last && !last.ok) break
    }
    return last
  }

  *#verdicts(task: Task, submission: Submission, byText: boolean) {
    for (const name of this.of(task)) {
      const body = this.#ports.bodies.get(name)
      if (body?.verify && (body.readsTextAlone ?? false) === byText) yield body.verify(task, submission)
    }
  }

  /** `folder`: a local folder to check in, in place of the task's own. */
  #submission(task: Task, text: string, earlier: Findings, signal: AbortSignal, folder?: string): Submission {
    const { opencode, commands: marks, stopped, groupKindOf } = this.#services
    const { places } = this.#ports
    return {
      text,
      earlier,
      signal,
      async command(command, timeLimit) {
        // Stopping the plugin stops the command.
        const limits = { timeLimit, signal: AbortSignal.any([signal, stopped]) }
        const run = folder === undefined ? await places.runner(task) : undefined
        if (run) return run(command, limits)
        const { runCommand } = await import("./places/process.ts")
        return runCommand(command, { cwd: folder ?? opencode.folderOf(task.sessionID), ...limits, marks })
      },
      isLast: groupKindOf(task)?.picksOne === true,
      changed: (globs) => places.changedIn(task, globs),
      lacks: () => places.lackedBy(task),
    }
  }
}
