import { execFileSync, spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect, test } from "vitest"
import { eventually, openSession, unwrap } from "../support/drive.ts"
import { prepareHome, removeHome } from "../support/home.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { gate, launch, notified, PACKAGE } from "../support/plugin.ts"
import { startRegistry } from "../support/registry.ts"
import { BINARY } from "../support/server-process.ts"
import { startTui, type Tui } from "../support/tui.ts"

const MOST_PACKED_BYTES = 2_000_000
const INSTALL_MS = 60_000
const LOADS = 5
/** Of a core: what is only for some (the tokenizer, the board, the page) must not be in it. */
const MOST_LOAD_MS = 300

type Packed = {
  filename: string
  integrity: string
  size: number
  unpackedSize: number
  files: { path: string }[]
}

let folder: string
let packed: Packed
let manifest: { name: string; version: string; dependencies?: unknown }
let registry: Awaited<ReturnType<typeof startRegistry>> | undefined
let home: Awaited<ReturnType<typeof prepareHome>>
let model: ScriptedModel
let opencode: Opencode | undefined
let tui: Tui | undefined

beforeAll(async () => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "superagents-packed-")))
  // The end-to-end tests have just built it.
  const args = ["pack", "--ignore-scripts", "--json", "--pack-destination", folder]
  packed = JSON.parse(execFileSync("npm", args, { cwd: PACKAGE, encoding: "utf8" }))[0]
  manifest = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8"))
  registry = await startRegistry(manifest, join(folder, packed.filename), packed.integrity)
  model = await startModel()
  home = await prepareHome({ model })
  writeFileSync(join(String(home.env.HOME), ".npmrc"), `registry=${registry.url}/\n`)
})

afterAll(async () => {
  await tui?.stop()
  await opencode?.stop()
  await model?.close()
  await registry?.close()
  await Promise.all([removeHome(folder), removeHome(home.root)])
})

test("the package contains both halves and its documents, and installs no dependencies", () => {
  const paths = packed.files.map(({ path }) => path)
  expect(paths).toEqual(
    expect.arrayContaining([
      "dist/server.js",
      "dist/tui.js",
      "docs/options.schema.json",
      "README.md",
      "LICENSE",
      "CHANGELOG.md",
    ]),
  )
  expect(
    paths.filter(
      (path) => !/^(dist\/[\w./-]+\.(c?js|html)|docs\/options\.schema\.json|[A-Z]+(\.md)?|package\.json)$/.test(path),
    ),
  ).toEqual([])
  expect(manifest.dependencies).toBeUndefined()
  console.log(`The package: ${kilobytes(packed.size)} packed, ${kilobytes(packed.unpackedSize)} installed.`)
  expect(packed.size).toBeLessThan(MOST_PACKED_BYTES)
})

test("the plugin works in both halves when `opencode plugin` installs it from the tarball", async () => {
  expect(await install()).toMatch(/Detected server \+ tui targets.*exit 0$/s)
  opencode = await startOpencode({ home: home.root, model })
  expect(await unwrap(opencode.client.tool.ids())).toContain("superagents_task")
  const sessionID = await openSession(opencode)
  tui = await startTui({ opencode, sessionID })
  const hint = 'Try: "let three agents look at it"'
  await tui.waitFor(hint)
  const { opened, open } = gate()
  model.use((request) => (request.firstUser === "P-PACKED" ? opened.then(() => ({ text: "It works." })) : undefined))
  await launch(opencode, model, sessionID, { prompt: "P-PACKED", description: "Try the package" })
  expect(await tui.waitFor(/Background agents 1 running/)).not.toContain(hint)
  open()
  await tui.waitFor(/✓ Try the package/)
  const [notification] = await notified(opencode, sessionID)
  expect(notification?.visible).toContain('Agent "Try the package" finished')
})

test("OpenCode silently drops a plugin whose version range excludes it, so our range must include it", async () => {
  const other = await excluded()
  const elsewhere = await prepareHome({ model })
  writeFileSync(join(String(elsewhere.env.HOME), ".npmrc"), `registry=${other.url}/\n`)
  try {
    expect(await install(elsewhere)).toMatch(/Detected server \+ tui targets.*exit 0$/s)
    const deaf = await startOpencode({ home: elsewhere.root, model })
    try {
      expect(await unwrap(deaf.client.tool.ids())).not.toContain("superagents_task")
      expect(deaf.logs()).not.toMatch(/service=superagents/)
    } finally {
      await deaf.stop()
    }
  } finally {
    await Promise.all([other.close(), removeHome(elsewhere.root)])
  }
})

test("loading the plugin costs OpenCode's Bun little CPU time", async () => {
  const installed = installedServer(join(home.root, "cache"))
  const script = `const begin = process.cpuUsage()
const { default: plugin } = await import(${JSON.stringify(installed)})
if (typeof plugin.server !== "function") throw new Error("no server half")
const { user, system } = process.cpuUsage(begin)
process.stdout.write(String((user + system) / 1000))`
  const load = () =>
    Number(execFileSync(BINARY, ["-e", script], { env: { ...home.env, BUN_BE_BUN: "1" }, encoding: "utf8" }))
  // OpenCode may still be unpacking it, a second time, for the terminal.
  await eventually(load, { timeout: INSTALL_MS })
  const times = Array.from({ length: LOADS }, load).sort((a, b) => a - b)
  console.log(
    `It adds to a start: ${times.map((ms) => ms.toFixed(0)).join(", ")} ms of a core to load (${LOADS} times).`,
  )
  expect(times[0]).toBeLessThan(MOST_LOAD_MS)
})

/** The same package for another OpenCode, in a registry of its own. */
async function excluded() {
  const unpacked = join(folder, "excluded")
  mkdirSync(unpacked)
  execFileSync("tar", ["-xzf", join(folder, packed.filename), "-C", unpacked])
  const inside = join(unpacked, "package")
  const changed = { ...manifest, engines: { opencode: ">=3" }, scripts: {} }
  writeFileSync(join(inside, "package.json"), JSON.stringify(changed))
  const args = ["pack", "--ignore-scripts", "--json", "--pack-destination", unpacked]
  const [again] = JSON.parse(execFileSync("npm", args, { cwd: inside, encoding: "utf8" })) as Packed[]
  if (!again) throw new Error("npm packed nothing")
  return startRegistry(changed, join(unpacked, again.filename), again.integrity)
}

/** What the command printed. Not run synchronously: this process is the registry. */
function install({ directory, env } = home): Promise<string> {
  return new Promise((resolve) => {
    const child = spawn(BINARY, ["plugin", manifest.name], { cwd: directory, env, timeout: INSTALL_MS })
    let printed = ""
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => {
        printed += text
      })
    child.once("close", (code) => resolve(`${printed}\nexit ${code}`))
  })
}

const kilobytes = (bytes: number) => `${(bytes / 1000).toFixed(0)} kB`

/** Where OpenCode put the package that it installed. */
function installedServer(cache: string): string {
  const found = readdirSync(cache, { recursive: true, encoding: "utf8" }).find((path) =>
    path.endsWith("node_modules/opencode-superagents/dist/server.js"),
  )
  if (!found) throw new Error(`no installed package below ${cache}`)
  return join(cache, found)
}
