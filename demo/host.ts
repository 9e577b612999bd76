import { callTool, openSession } from "../test/support/drive.ts"
import { type Far, startFar } from "../test/support/far.ts"
import type { ModelRequest, Reply } from "../test/support/model.ts"
import { launchedFrom, notifications } from "../test/support/plugin.ts"
import { Problem } from "./ending.ts"
import { PLUGIN, perform, type Stage } from "./stage.ts"

/**
 * The demo's fourth act: an agent on another machine, played by a second home on this one. The line to it is cut while it
 * works, and what it changed comes home.
 */

const TASK = "Write down what this machine is"
const WORK = "echo 'Written in' $HOME > where.txt; sleep 8"
const LIMIT_MS = 90_000
const CUT_MS = 3000

/** What the agent there does: one command, and its answer. */
function play({ firstUser, sinceUser }: ModelRequest): Reply | undefined {
  if (!firstUser.startsWith(TASK)) return undefined
  if (sinceUser.some(({ role }) => role === "tool")) return { text: "It is in where.txt." }
  return { tools: [{ name: "bash", args: { command: WORK, description: "writes it down" } }] }
}

/** Cuts the line when the agent there has called its first tool, for three seconds. */
function cutter(stage: Stage, far: Far): (row: string) => void {
  let isCut = false
  return (row) => {
    if (isCut || !row.includes("1 tool call")) return
    isCut = true
    stage.tell("The line is cut.")
    far.cut()
    setTimeout(() => {
      stage.tell("The line is back.")
      far.set("open")
    }, CUT_MS)
  }
}

await perform(
  () => play,
  async (stage) => {
    stage.commit()
    const far = await startFar(stage.model)
    stage.afterwards(() => far.stop())
    const options = { hosts: { big: { command: far.command } } }
    const opencode = await stage.open(
      "Starting OpenCode here, with a host `big`: a second home, reached by a command like ssh.",
      { usersPlugin: [[PLUGIN, options]] },
    )
    const session = await openSession(opencode, { title: "Demo" })
    const call = (name: string, args: object) =>
      callTool(opencode, stage.model, session, name, args, { timeout: LIMIT_MS })
    const tool = async (name: string, args: object) => (await call(name, args)).output ?? ""
    const task = { description: TASK, prompt: TASK, agent: "general", place: "big" }
    const { id, output } = launchedFrom(await call("superagents_task", task))
    stage.tell('superagents_task(place: "big"):', output)
    const cutOnce = cutter(stage, far)
    let before = ""
    const { visible } = await stage.until(opencode, LIMIT_MS, async () => {
      const row = await tool("superagents_list", {})
      const phase = /^.*\| *running, ([^|]*?) *\|/m.exec(row)?.[1] ?? before
      if (phase !== before) stage.screen.log(`  ${phase}`)
      before = phase
      cutOnce(row)
      return (await notifications(opencode, session))[0]
    })
    stage.tell("Notification in the parent's session:", visible)
    stage.tell("superagents_output:", await tool("superagents_output", { task_id: id }))
    stage.tell("superagents_task(merge):", await tool("superagents_task", { merge: id }))
    const left = far.folders().length
    if (left > 0) throw new Problem(`Not all went as it should: ${left} folders were left there.`)
    stage.conclude("it worked there, and nothing of it is left there.")
  },
)
