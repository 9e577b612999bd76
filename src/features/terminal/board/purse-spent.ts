import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import type { Purse } from "../../board/state.ts"

/** Time limit for the reads, in ms, because OpenCode may have ended. */
const LIMIT_MS = 5000

type Client = Pick<TuiPluginApi["client"], "session">

/**
 * Usage of a purse's threads and their descendants since it pays them, in US dollars, from OpenCode's totals. Undefined
 * where OpenCode does not answer; never rejects.
 */
export async function spentOf(client: Client, { threads }: Pick<Purse, "threads">): Promise<number | undefined> {
  const options = { signal: AbortSignal.timeout(LIMIT_MS) }
  const below = async ({ id: sessionID, cost = 0 }: Pick<Session, "id" | "cost">): Promise<number> => {
    const { data } = await client.session.children({ sessionID }, options)
    if (!data) throw new Error("not answered")
    return sum([cost, ...(await Promise.all(data.map(below)))])
  }
  try {
    const took = Object.entries(threads).map(async ([sessionID, { before }]) => {
      const { data } = await client.session.get({ sessionID }, options)
      if (!data) throw new Error("not answered")
      // A deleted session takes its cost along.
      return Math.max(0, (await below(data)) - before.cost)
    })
    return sum(await Promise.all(took))
  } catch {
    return undefined
  }
}

const sum = (amounts: readonly number[]): number => amounts.reduce((all, amount) => all + amount, 0)
