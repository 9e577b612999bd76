import { callTool, callTools, eventually, messages, openSession } from "./drive.ts"
import type { Host } from "./host.ts"
import type { ScriptedModel } from "./model.ts"
import { launchedFrom } from "./plugin.ts"

/** How a round of the kill test came out for one task. */
export type Fate = { readonly id: string; readonly status: string; readonly notifications: number }

const ROW = /^(bg_[a-z0-9]{8}).* \| (completed|error|cancelled|running|resumed)[^|]*\|/

/** Launches `count` tasks in a new session, all in one message; returns the session and the tasks' ids. */
export async function launchMany(host: Host, model: ScriptedModel, count: number, prompt: (index: number) => string) {
  const session = await openSession(host)
  const calls = Array.from({ length: count }, (_, index) => ({
    name: "superagents_task",
    args: { description: `task ${index}`, prompt: prompt(index), agent: "general" },
  }))
  const outcomes = await callTools(host, model, session, calls)
  return { session, ids: outcomes.map((outcome) => launchedFrom(outcome).id) }
}

/** What the parent's messages tell of each of these tasks: how many notifications. */
export async function notificationsOf(host: Host, session: string, ids: readonly string[]): Promise<number[]> {
  const texts = (await messages(host, session)).flatMap(({ info, parts }) =>
    info.role === "user" ? parts.flatMap((part) => (part.type === "text" && part.synthetic ? [part.text] : [])) : [],
  )
  return ids.map((id) => texts.filter((text) => text.includes(`ask ${id}: `) || text.includes(`task ${id} (`)).length)
}

/** The status of each task as `superagents_list` shows it. */
export async function statuses(host: Host, model: ScriptedModel, session: string): Promise<Map<string, string>> {
  const { output = "" } = await callTool(host, model, session, "superagents_list", {})
  return new Map(
    output.split("\n").flatMap((line) => {
      const [, id, status] = ROW.exec(line) ?? []
      return id && status ? [[id, status] as const] : []
    }),
  )
}

/** Uses the parent's session as a user would after a restart, and waits until every task has ended and is told. */
export async function fates(
  host: Host,
  model: ScriptedModel,
  session: string,
  ids: readonly string[],
): Promise<Fate[]> {
  let last: Fate[] = []
  const settled = async () => {
    const [byID, told] = [await statuses(host, model, session), await notificationsOf(host, session, ids)]
    last = ids.map((id, index) => ({ id, status: byID.get(id) ?? "lost", notifications: told[index] ?? 0 }))
    return last.every(({ status, notifications }) => status !== "running" && notifications > 0)
  }
  await eventually(settled, {
    timeout: 30_000,
    message: () => `all tasks are ended and told: ${JSON.stringify(last)}\n${host.logs()}`,
  })
  return last
}
