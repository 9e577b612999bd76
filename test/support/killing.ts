import { callTool, callTools, eventually, idle, messages, openSession } from "./drive.ts"
import type { ScriptedModel } from "./model.ts"
import type { Opencode } from "./opencode.ts"
import { launchedFrom } from "./plugin.ts"

/** How a round of the kill test came out for one task. */
export type Fate = { readonly id: string; readonly status: string; readonly notifications: number }

const ROW = /^(bg_[a-z0-9]{8}).* \| (completed|error|cancelled|running|resumed)[^|]*\|/

/** Launches `count` tasks in a new session, all in one message; returns the session and the tasks' ids. */
export async function launchMany(
  opencode: Opencode,
  model: ScriptedModel,
  count: number,
  prompt: (index: number) => string,
) {
  const session = await openSession(opencode)
  const calls = Array.from({ length: count }, (_, index) => ({
    name: "superagents_task",
    args: { description: `task ${index}`, prompt: prompt(index), agent: "general" },
  }))
  const outcomes = await callTools(opencode, model, session, calls)
  return { session, ids: outcomes.map((outcome) => launchedFrom(outcome).id) }
}

/** What the parent's messages tell of each of these tasks: how many notifications. */
export async function notificationsOf(opencode: Opencode, session: string, ids: readonly string[]): Promise<number[]> {
  const texts = (await messages(opencode, session)).flatMap(({ info, parts }) =>
    info.role === "user" ? parts.flatMap((part) => (part.type === "text" && part.synthetic ? [part.text] : [])) : [],
  )
  return ids.map((id) => texts.filter((text) => text.includes(`ask ${id}: `) || text.includes(`task ${id} (`)).length)
}

/** The status of each task as `superagents_list` shows it. */
export async function statuses(
  opencode: Opencode,
  model: ScriptedModel,
  session: string,
): Promise<Map<string, string>> {
  const { output = "" } = await callTool(opencode, model, session, "superagents_list", {})
  return new Map(
    output.split("\n").flatMap((line) => {
      const [, id, status] = ROW.exec(line) ?? []
      return id && status ? [[id, status] as const] : []
    }),
  )
}

/** Longest wait for what a restarted OpenCode has to tell: on a busy machine it takes half a minute to start. */
const PATIENCE_MS = 120_000

/** Uses the parent's session as a user would after a restart, and waits until every task is told and has ended. */
export async function fates(
  opencode: Opencode,
  model: ScriptedModel,
  session: string,
  ids: readonly string[],
): Promise<Fate[]> {
  await statuses(opencode, model, session)
  const patience = { timeout: PATIENCE_MS, news: opencode.events }
  const told = async () => (await notificationsOf(opencode, session, ids)).every((count) => count > 0)
  await eventually(told, { ...patience, message: () => `all of ${ids} are told\n${opencode.logs()}` })
  await idle(opencode, session, { timeout: PATIENCE_MS })
  const byID = await statuses(opencode, model, session)
  const counts = await notificationsOf(opencode, session, ids)
  return ids.map((id, index) => ({ id, status: byID.get(id) ?? "lost", notifications: counts[index] ?? 0 }))
}
