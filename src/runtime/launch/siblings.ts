import { CallError } from "../../core/errors.ts"
import { succeeds } from "../../lib/succeeds.ts"
import { oneLine } from "../../lib/text.ts"

type Request = {
  readonly description: string
  readonly batch?: string
  readonly after?: readonly string[] | string
}

type Launch = {
  readonly sessionID: string
  readonly request: Request
  /** Resolves to whether the task was created. */
  readonly made: Promise<boolean>
}

/** Launches in progress. Calls of one message run in parallel, and one may name the batch of another. */
export class Siblings {
  readonly #underWay = new Set<Launch>()

  /** Runs `make`, visible to later launches; it receives a function that waits for earlier ones. */
  async launch<Made>(
    sessionID: string,
    request: Request,
    make: (waitsFor: () => Promise<void>) => Promise<Made>,
  ): Promise<Made> {
    const before = [...this.#underWay].filter((other) => other.sessionID === sessionID)
    const making = make(() => waitForBatch(request.after, before))
    const launch = { sessionID, request, made: succeeds(making) }
    this.#underWay.add(launch)
    try {
      return await making
    } finally {
      this.#underWay.delete(launch)
    }
  }
}

/** Resolves when the batch's launches are done. Throws where one of them failed. */
async function waitForBatch(batch: Request["after"], before: readonly Launch[]): Promise<void> {
  const others = before.filter(({ request }) => request.batch !== undefined && request.batch === batch)
  for (const { request, made } of others)
    if (!(await made))
      throw new CallError(
        `Nothing was launched: it would wait for "${oneLine(request.description)}", of the same message, which could not be launched. Launch that again first, or launch this without it.`,
      )
}
