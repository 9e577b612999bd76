import { execFileSync } from "node:child_process"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { openSession } from "../test/support/drive.ts"
import { type Script, type ScriptedModel, startModel } from "../test/support/model.ts"
import { type Opencode, type OpencodeOptions, startOpencode } from "../test/support/opencode.ts"
import { Problem, playToEnd } from "./ending.ts"
import { makeHome, removeFolder } from "./home.ts"
import { quoted, Screen } from "./screen.ts"

const LOOK_MS = 100

/** The plugin as a user names it: its checkout's absolute path. */
export const PLUGIN = fileURLToPath(new URL("..", import.meta.url)).replace(/\/$/, "")

/** What an act plays with: a throw-away home with a project, a scripted model, and a screen. */
export class Stage {
  readonly home: string
  readonly project: string
  readonly model: ScriptedModel
  readonly screen: Screen
  /** What is undone when the act is over, the newest first. */
  readonly afterwards: (undo: () => unknown) => void

  constructor(parts: Pick<Stage, "home" | "model" | "screen" | "afterwards">) {
    this.home = parts.home
    this.project = join(parts.home, "project")
    this.model = parts.model
    this.screen = parts.screen
    this.afterwards = parts.afterwards
  }

  /** Makes the project a repository with all of it in one commit: a worktree or a copy on another machine needs one. */
  commit(): void {
    const git = (...args: string[]) => execFileSync("git", args, { cwd: this.project, stdio: "ignore" })
    removeFolder(join(this.project, ".git"))
    git("init", "--quiet")
    git("add", "--all")
    git("-c", "user.name=demo", "-c", "user.email=demo@localhost", "commit", "--quiet", "--message", "start")
  }

  /** Says what begins, and starts OpenCode with it. */
  async open(words: string, options: OpencodeOptions): Promise<Opencode> {
    this.screen.log(words)
    const opencode = await startOpencode({ home: this.home, model: this.model, ...options })
    this.afterwards(() => opencode.stop())
    return opencode
  }

  openBoard(): Promise<Opencode> {
    const plugin: OpencodeOptions["plugin"] = [[PLUGIN, { board: {} }]]
    return this.open("Starting OpenCode with the board, in a throw-away project.", { plugin })
  }

  /** The user asks in a new session; returns its id. */
  async ask(opencode: Opencode, prompt: string): Promise<string> {
    const sessionID = await openSession(opencode, { title: "Demo" })
    this.tell("You:", prompt)
    await opencode.client.session.promptAsync({ sessionID, parts: [{ type: "text", text: prompt }] })
    return sessionID
  }

  /** A heading, and below it what somebody said. */
  tell(heading: string, ...words: readonly string[]): void {
    const { screen } = this
    screen.log("", screen.paint("bold", heading), ...words.flatMap((each) => quoted(each, screen.width)))
  }

  conclude(words: string): void {
    this.screen.log("", this.screen.paint("green", `All went as it should: ${words}`))
  }

  /** Looks again and again until there is a result; `limit` is in milliseconds. */
  async until<T>(opencode: Opencode, limit: number, look: () => T | undefined | Promise<T | undefined>): Promise<T> {
    for (const deadline = Date.now() + limit; Date.now() < deadline; await sleep(LOOK_MS)) {
      const result = await look()
      if (result !== undefined) return result
    }
    throw new Problem(`It did not end within ${limit / 1000} seconds. What OpenCode said last:\n${opencode.logs()}`)
  }
}

/** Plays one act of the demo by the scripted model, takes everything away after it, and ends the process. */
export function perform(script: (stage: Stage) => Script, act: (stage: Stage) => Promise<void>): Promise<never> {
  return playToEnd(async (afterwards) => {
    const home = makeHome(afterwards)
    const model = await startModel()
    afterwards(() => model.close())
    const screen = new Screen()
    afterwards(() => screen.close())
    const stage = new Stage({ home, model, screen, afterwards })
    model.use(script(stage))
    await act(stage)
  })
}
