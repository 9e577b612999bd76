import { setTimeout as sleep } from "node:timers/promises"
import { openSession } from "../test/support/drive.ts"
import { startModel } from "../test/support/model.ts"
import { type Opencode, startOpencode } from "../test/support/opencode.ts"
import { Problem, playToEnd } from "./ending.ts"
import { makeHome, ownOpencode } from "./home.ts"
import { bill, quoted, Screen } from "./screen.ts"
import { PLUGIN } from "./stage.ts"
import { PROMPT, scriptedPlay } from "./story.ts"
import { type Happening, Watch } from "./watch.ts"

const AGENTS = 3
const FRAME_MS = 100
const LOG_DELAY_MS = 1000
const SCRIPTED_LIMIT_MS = 60_000
const OWN_LIMIT_MS = 600_000
/** How long the parent may stay idle with nothing running before that counts as its end. */
const QUIET_MS = 6000

/** `answers`: the tasks whose answers the parent has, with a notification or fetched. */
type Seen = { readonly launched: Set<string>; readonly answers: Set<string>; notices: number; closing: string }

const screen = new Screen()

type Afterwards = (undo: () => unknown) => void

async function main(ownModel: string | undefined, afterwards: Afterwards): Promise<void> {
  const home = makeHome(afterwards)
  screen.log("Starting OpenCode with the plugin, in a throw-away project.")
  const opencode = await start(home, ownModel, afterwards)
  afterwards(() => screen.close())
  if (ownModel) await refuseUnknownModel(opencode, ownModel)
  await refuseWithoutPlugin(opencode)
  const sessionID = await openSession(opencode, { title: "Demo" })
  screen.log("", screen.paint("bold", "You:"), ...quoted(PROMPT, screen.width))
  const { error } = await opencode.client.session.promptAsync({ sessionID, parts: [{ type: "text", text: PROMPT }] })
  if (error) throw new Problem(`OpenCode did not take the prompt: ${JSON.stringify(error)}`)
  const watch = new Watch(sessionID)
  const seen = await follow(opencode, watch, ownModel ? OWN_LIMIT_MS : SCRIPTED_LIMIT_MS)
  if (screen.live) screen.log("", ...[...watch.agents.values()].map((agent) => screen.row(agent)))
  conclude(seen)
  screen.log(bill(watch.usage, [...watch.agents.values()]))
}

async function start(home: string, ownModel: string | undefined, afterwards: Afterwards): Promise<Opencode> {
  const scripted = ownModel ? undefined : await startModel()
  if (scripted) {
    scripted.use(scriptedPlay())
    afterwards(() => scripted.close())
  }
  const options = ownModel ? ownOpencode(home, ownModel) : { home, model: scripted }
  const opencode = await startOpencode({ ...options, plugin: [[PLUGIN, {}]] })
  afterwards(() => opencode.stop())
  return opencode
}

async function refuseUnknownModel(opencode: Opencode, model: string): Promise<void> {
  const { data } = await opencode.client.config.providers()
  const providers = data?.providers ?? []
  const [wanted = ""] = model.split("/")
  const provider = providers.find(({ id }) => id === wanted)
  const known = providers.map(({ id }) => id).join(", ") || "none"
  if (!provider)
    throw new Problem(
      `Your OpenCode has no provider "${wanted}" set up (there are: ${known}). Add it with: opencode auth login`,
    )
  const names = Object.keys(provider.models)
  if (names.includes(model.slice(wanted.length + 1))) return
  throw new Problem(`The provider "${wanted}" has no such model. It has, among others: ${names.slice(0, 8).join(", ")}`)
}

async function refuseWithoutPlugin(opencode: Opencode): Promise<void> {
  const { data } = await opencode.client.tool.ids()
  if (data?.includes("superagents_task")) return
  // OpenCode writes its log a moment late.
  await sleep(LOG_DELAY_MS)
  const errors = opencode
    .logs()
    .split("\n")
    .filter((line) => line.includes("ERROR"))
  throw new Problem(`OpenCode did not load the plugin. ${errors.join("\n") || "Its log does not say why."}`)
}

/** Shows what happens until the parent has said its last words. */
async function follow(opencode: Opencode, watch: Watch, limit: number): Promise<Seen> {
  const seen: Seen = { launched: new Set(), answers: new Set(), notices: 0, closing: "" }
  const deadline = Date.now() + limit
  let read = 0
  let quietSince = Date.now()
  while (Date.now() < deadline) {
    const events = opencode.events.all.slice(read)
    read += events.length
    for (const event of events) for (const happening of watch.take(event)) show(happening, seen)
    const agents = [...watch.agents.values()]
    screen.draw(agents)
    const working = watch.busy || agents.some(({ endedAt }) => endedAt === undefined)
    if (working || events.length > 0 || !watch.begun) quietSince = Date.now()
    const all = seen.notices >= AGENTS && seen.answers.size >= AGENTS && seen.closing !== ""
    if ((all && !working) || Date.now() - quietSince > QUIET_MS) return seen
    await sleep(FRAME_MS)
  }
  throw new Problem(`The demo did not end within ${limit / 1000} seconds. What OpenCode said last:\n${opencode.logs()}`)
}

function show(happening: Happening, seen: Seen): void {
  const bold = (text: string) => screen.paint("bold", text)
  const dim = (lines: readonly string[]) => lines.map((line) => screen.paint("dim", line))
  switch (happening.type) {
    case "launched":
      seen.launched.add(happening.taskID)
      return screen.log(...dim([`  superagents_task → ${happening.taskID} (${happening.description})`]))
    case "agent":
      if (!screen.live) screen.log(screen.row(happening.agent))
      return
    case "notified":
      seen.notices++
      if (happening.hidden.includes("<task_output>")) seen.answers.add(/\bbg_\w+/.exec(happening.hidden)?.[0] ?? "")
      return screen.log(
        "",
        bold("Notification in the parent's session:"),
        ...quoted(happening.visible, screen.width),
        ...dim(["  Only the model reads:", ...quoted(happening.hidden, screen.width)]),
      )
    case "fetched":
      seen.answers.add(happening.taskID)
      return screen.log("", bold("superagents_output:"), ...quoted(happening.output, screen.width))
    case "said":
      if (seen.answers.size >= AGENTS) seen.closing = happening.text
      return screen.log("", bold("Parent:"), ...quoted(happening.text, screen.width))
    case "refused":
      return screen.log(screen.paint("yellow", `  ${happening.tool} was refused: ${happening.error}`))
    case "failed":
      throw new Problem(`The parent's model failed: ${happening.reason}`)
  }
}

function conclude({ launched, notices, answers, closing }: Seen): void {
  const counts = `${launched.size} launched, ${notices} notifications, ${answers.size} answers`
  if (launched.size < AGENTS || notices < AGENTS || answers.size < AGENTS)
    throw new Problem(`Not all went as it should: ${counts}; ${AGENTS} of each were expected.`)
  if (closing === "") throw new Problem("The parent got the answers but said nothing about them.")
  screen.log("", screen.paint("green", `All went as it should: ${counts}.`))
}

await playToEnd((afterwards) => main(process.argv[2], afterwards))
