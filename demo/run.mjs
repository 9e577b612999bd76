#!/usr/bin/env node
/**
 * `npm run demo`: plain JavaScript, since it runs before anything is installed. Reads the options, installs and builds
 * what is missing, and hands over to demo.ts.
 */
import { spawn } from "node:child_process"
import { existsSync, readdirSync, statSync } from "node:fs"
import { join } from "node:path"
import { parseArgs } from "node:util"
import { fail, install, npm, ROOT } from "../scripts/install.mjs"

const HELP = `Plays the plugin's main job on a real OpenCode: a parent agent launches three background agents, goes on, is
told when each ends, and fetches the answers.

Usage:
  npm run demo                               a scripted model: no key, no network, about 20 seconds
  npm run demo -- --board                    the second act: a task on the board, done through a subtask, in a minute
  npm run demo -- --tries                    the third act: a ladder of two models, won by its second rung
  npm run demo -- --host                     the fourth act: an agent on another machine, and a line that is cut
  npm run demo -- --night                    the fifth act: a purse, a provider at its limit, a report, in a minute
  npm run demo -- --model provider/model     your own provider and key, as your OpenCode has them set up

Options:
  --model <provider/model>   Use this model. Your OpenCode configuration and credentials are used as they are. The work
                             happens in a throw-away project: the agents may read there and run its tests, nothing
                             else. It costs what a few short prompts cost.
  -h, --help                 This text.

Ends by itself: exit code 0 if three agents ran, reported and were read, 1 if not. Ctrl-C stops it and cleans up.`

function readOptions() {
  const options = {
    model: { type: "string" },
    board: { type: "boolean" },
    tries: { type: "boolean" },
    host: { type: "boolean" },
    night: { type: "boolean" },
    help: { type: "boolean", short: "h" },
  }
  try {
    return parseArgs({ options, strict: true, allowPositionals: false }).values
  } catch (error) {
    return fail(`${error.message.split(". ")[0]}.\nSee: npm run demo -- --help`)
  }
}

/** What each option has the scripted model play; without one it is the main job, which `--model` plays, too. */
const ACTS = ["board", "tries", "host", "night"]

function refuseUnlessPossible(options) {
  const { model } = options
  const [act, other] = [...ACTS, "model"].filter((name) => options[name] !== undefined)
  if (other !== undefined) fail(`--${act} is played by itself, by the scripted model: leave out --${other}.`)
  if (process.platform === "win32") fail("The demo needs a Unix shell: on Windows, run it in WSL.")
  if (model === undefined && process.env.npm_config_model)
    fail("npm kept --model to itself. Put two dashes before it: npm run demo -- --model provider/model")
  if (model !== undefined && !/^[^/\s]+\/\S+$/.test(model))
    fail(`--model takes provider/model, for example anthropic/claude-haiku-4-5; got "${model}".`)
}

const timesIn = (folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => statSync(join(entry.parentPath ?? entry.path, entry.name)).mtimeMs)

/** Whether every file of the last build is newer than what it was built from. */
function isBuilt() {
  if (!existsSync(join(ROOT, "dist", "relay.cjs"))) return false
  const sources = ["src", "config", "scripts"].flatMap(timesIn)
  return Math.min(...timesIn("dist")) > Math.max(...sources, statSync(join(ROOT, "package-lock.json")).mtimeMs)
}

function build() {
  if (isBuilt()) return
  console.log("Building the plugin.")
  const { ok, output } = npm(["run", "--silent", "build"])
  if (!ok) fail(`${output}\nThe build failed.`)
}

function play({ model, ...acts }) {
  const act = ACTS.find((name) => acts[name]) ?? "demo"
  const args = ["--import", "tsx", join(ROOT, "demo", `${act}.ts`), ...(model === undefined ? [] : [model])]
  const child = spawn(process.execPath, args, { cwd: ROOT, stdio: "inherit" })
  // The terminal sends Ctrl-C to both: the child cleans up, this process waits for it.
  process.on("SIGINT", () => {})
  for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal))
  child.once("error", (error) => fail(`The demo could not be started: ${error.message}`))
  child.once("exit", (code) => process.exit(code ?? 1))
}

const options = readOptions()
if (options.help) {
  console.log(HELP)
} else {
  refuseUnlessPossible(options)
  install()
  build()
  play(options)
}
