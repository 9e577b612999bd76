import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import type { Purse } from "../board/state.ts"

/** The host may be gone: its answers are not waited for longer. */
const LIMIT_MS = 5000

type Client = Pick<TuiPluginApi["client"], "session">

/**
 * What a purse's threads took since they are paid from it, with the sessions below them, in US dollars: OpenCode keeps
 * each session's sum. Undefined where it does not say. Never rejects.
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
      return (await below(data)) - before.cost
    })
    return sum(await Promise.all(took))
  } catch {
    return undefined
  }
}

const sum = (amounts: readonly number[]): number => amounts.reduce((all, amount) => all + amount, 0)
