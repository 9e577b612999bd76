import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { ModelRequest, Reply } from "../test/support/model.ts"
import { notifications } from "../test/support/plugin.ts"
import { Problem } from "./ending.ts"
import { PLUGIN, perform, type Stage } from "./stage.ts"

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

/** The cheap model nearly has it; the strong one reads what became of that, and has it. */
function play(stage: Stage, { firstUser, lastUser, sinceUser }: ModelRequest): Reply | undefined {
  if (lastUser.startsWith(PROMPT))
    return sinceUser.length === 0
      ? { tools: [{ name: "superagents_task", args: TASK }] }
      : { text: "Two models are at it, one after the other." }
  if (!firstUser.includes(TASK.prompt)) return undefined
  if (sinceUser.length > 0) return { text: "Mended." }
  const isSecond = firstUser.includes("Others tried this before you")
  if (isSecond) stage.tell("The second rung reads:", digestIn(firstUser))
  const command = `printf '%s' '${isSecond ? RIGHT : NEARLY}' > sum.sh`
  return { tools: [{ name: "bash", args: { command, description: "mends it" } }], delay: 900 }
}

const digestIn = (prompt: string): string =>
  /<earlier_tries[^>]*>\n([\s\S]*?)\n<\/earlier_tries>/.exec(prompt)?.[1] ?? ""

/** A repository with a failing test: tries need git. */
function writeRepository(stage: Stage): void {
  const { project } = stage
  mkdirSync(join(project, "test"), { recursive: true })
  writeFileSync(join(project, "sum.sh"), WRONG)
  writeFileSync(join(project, "test", "sum.test.sh"), 'got=$(sh sum.sh 2 3); echo "2 and 3: $got"; test "$got" = 5\n')
  stage.commit()
}

await perform(
  (stage) => (request) => play(stage, request),
  async (stage) => {
    writeRepository(stage)
    const opencode = await stage.open("Starting OpenCode in a throw-away repository with a failing test.", {
      plugin: [PLUGIN],
    })
    const session = await stage.ask(opencode, PROMPT)
    const { hidden } = await stage.until(opencode, LIMIT_MS, async () => (await notifications(opencode, session))[0])
    stage.tell("The agent is told:", hidden)
    const isMended = readFileSync(join(stage.project, "sum.sh"), "utf8").trim() === RIGHT.trim()
    if (!isMended || !hidden.includes("Tries: 2 of 2, won by scripted/beta"))
      throw new Problem("The second rung did not win.")
    stage.conclude("the second rung won, and its work alone is in your files.")
  },
)
