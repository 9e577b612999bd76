import { execFileSync } from "node:child_process"
import { readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { eventually, openSession } from "../test/support/drive.ts"
import { startHost } from "../test/support/host.ts"
import { type ModelRequest, type Reply, startModel } from "../test/support/model.ts"
import { notifications } from "../test/support/plugin.ts"
import { makeHome } from "./home.ts"
import { quoted, Screen } from "./screen.ts"

/** The demo's third act: a ladder of two models at a failing test, won by its second rung; played by the scripted model. */

const PROMPT = "sum.sh adds wrongly. Have it mended: first by the cheap model, then by the strong one."
const TASK = {
  description: "Mend the sum",
  agent: "general",
  prompt: "sum.sh adds its two arguments wrongly. Mend it.",
  tries: ["scripted/alpha", "scripted/beta"],
  check: "sh test/sum.test.sh",
  guard: ["test/**"],
  merge: true,
}
const WRONG = "echo $(( $1 - $2 ))\n"
const NEARLY = 'echo "$1 + $2"\n'
const RIGHT = "echo $(( $1 + $2 ))\n"
const LIMIT_MS = 90_000

const screen = new Screen()
const plugin = fileURLToPath(new URL("..", import.meta.url)).replace(/\/$/, "")

/** The cheap model nearly has it; the strong one reads what became of that, and has it. */
function play({ firstUser, lastUser, sinceUser }: ModelRequest): Reply | undefined {
  if (lastUser.startsWith(PROMPT))
    return sinceUser.length === 0
      ? { tools: [{ name: "superagents_task", args: TASK }] }
      : { text: "Two models are at it, one after the other." }
  if (!firstUser.includes(TASK.prompt)) return undefined
  if (sinceUser.length > 0) return { text: "Mended." }
  const isSecond = firstUser.includes("Others tried this before you")
  if (isSecond)
    screen.log("", screen.paint("bold", "The second rung reads:"), ...quoted(digestIn(firstUser), screen.width))
  const command = `printf '%s' '${isSecond ? RIGHT : NEARLY}' > sum.sh`
  return { tools: [{ name: "bash", args: { command, description: "mends it" } }], delay: 900 }
}

const digestIn = (prompt: string): string =>
  /<earlier_tries[^>]*>\n([\s\S]*?)\n<\/earlier_tries>/.exec(prompt)?.[1] ?? ""

/** A repository with a failing test: tries need git. */
function makeRepository(home: string): string {
  const project = join(home, "project")
  rmSync(join(project, ".git"), { recursive: true })
  execFileSync("mkdir", ["-p", join(project, "test")])
  writeFileSync(join(project, "sum.sh"), WRONG)
  writeFileSync(join(project, "test", "sum.test.sh"), 'got=$(sh sum.sh 2 3); echo "2 and 3: $got"; test "$got" = 5\n')
  const identity = ["-c", "user.name=demo", "-c", "user.email=demo@localhost"]
  for (const args of [
    ["init", "--quiet"],
    ["add", "--all"],
    [...identity, "commit", "--quiet", "--message", "start"],
  ])
    execFileSync("git", args, { cwd: project, stdio: "ignore" })
  return project
}

async function main(): Promise<void> {
  const home = makeHome()
  const project = makeRepository(home)
  const model = await startModel()
  model.use(play)
  screen.log("Starting OpenCode in a throw-away repository with a failing test.")
  const host = await startHost({ home, model, plugin: [plugin] })
  try {
    const sessionID = await openSession(host, { title: "Demo" })
    screen.log("", screen.paint("bold", "You:"), ...quoted(PROMPT, screen.width))
    await host.client.session.promptAsync({ sessionID, parts: [{ type: "text", text: PROMPT }] })
    const notice = await eventually(async () => (await notifications(host, sessionID))[0], { timeout: LIMIT_MS })
    screen.log("", screen.paint("bold", "The agent is told:"), ...quoted(notice.hidden, screen.width))
    const isMended = readFileSync(join(project, "sum.sh"), "utf8").trim() === RIGHT.trim()
    if (!isMended || !notice.hidden.includes("Tries: 2 of 2, won by scripted/beta"))
      throw new Error("The second rung did not win.")
    screen.log(
      "",
      screen.paint("green", "All went as it should: the second rung won, and its work alone is in your files."),
    )
  } finally {
    screen.close()
    await host.stop()
    await model.close()
    rmSync(home, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
  }
}

try {
  await main()
  process.exit(0)
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exit(1)
}
