import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, test } from "vitest"
import { unwrap } from "../support/drive.ts"
import type { ModelRequest } from "../support/model.ts"
import {
  agent,
  launch,
  merge,
  model,
  nothingLeft,
  opencode,
  output,
  placeScene,
  session,
  text,
  told,
  tool,
  user,
} from "../support/place-scene.ts"
import { notifications, notified } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"
import { bash } from "../support/shell-agent.ts"

/** Checks, limits and receipts of tasks in worktrees. */

placeScene()

test("a limit reached in a worktree reports the last word, if any, and keeps the work either way", async () => {
  user.write("shared.txt", text()).commit()
  const isAsked = ({ messages }: ModelRequest) => JSON.stringify(messages).includes("Answer at once: what is done")
  model.use((request) => {
    const { sessionID, firstUser, sinceUser } = request
    const [, name] = /^(SPENDS|HANGS-ON)/.exec(firstUser) ?? []
    if (sessionID === session || !name) return undefined
    if (isAsked(request)) return { text: "half is done" }
    if (sinceUser.length === 0) return { ...bash(`echo half > ${name}.txt`), usage: { input: 50_000 } }
    return name === "SPENDS" ? { ...bash("true"), usage: { input: 45_000 } } : { hang: true }
  })
  const [spends, hangs] = [await launch("SPENDS"), await launch("HANGS-ON", { timeout: 30_000 })]
  await notified(opencode, session, 2, 150_000)
  const shown = await output(spends.id)
  expect(shown).toMatch(/Reason: Stopped at .*token limit.*\.\n[\s\S]*last word, which is partial:[\s\S]*half is done/)
  expect(shown).toContain("Changes: 1 file, +1 −0: SPENDS.txt")
  const stopped = await output(hangs.id)
  expect(stopped).toMatch(/Reason: Stopped at its time limit of 30s/)
  expect(stopped).toContain("Changes: 1 file, +1 −0: HANGS-ON.txt")
  nothingLeft()
  expect([await merge(spends.id), await merge(hangs.id)].join()).toMatch(/Merged.*Merged/s)
  expect([user.read("SPENDS.txt"), user.read("HANGS-ON.txt")]).toEqual(["half\n", "half\n"])
}, 240_000)

test("an agent whose check fails twice is asked again in the same run, and merged after it passes", async () => {
  agent("CHECKED", ["echo one > steps"], ["echo two >> steps"], ["echo three >> steps"])
  const check = "test $(wc -l < steps) -ge 3 || { echo 'Tests:       1 failed, 12 passed, 13 total'; exit 1; }"
  const { id, child } = await launch("CHECKED", { check, merge: true })
  const [news] = await told()
  expect(news?.visible).toContain("finished in")
  expect(news?.hidden).toMatch(/Receipt: 3 commands; check `test .*` passed \(3 runs, exit code 0\)/)
  expect(news?.hidden).toContain("done: CHECKED, turn 3")
  expect(user.read("steps")).toBe("one\ntwo\nthree\n")
  const texts = (await unwrap(opencode.client.session.messages({ sessionID: child }))).flatMap(({ info, parts }) =>
    info.role === "user" ? parts.flatMap((part) => (part.type === "text" ? part.text : [])) : [],
  )
  expect(texts.filter((each) => each.includes("did not pass: exit code 1") && each.includes("12 passed"))).toHaveLength(
    2,
  )
  expect(await notifications(opencode, session)).toHaveLength(1)
  expect(await output(id)).toContain("Status: completed")
}, 120_000)

test("a task fails by a check that never passes or hangs, and a forbidden check is refused", async () => {
  agent("NEVER", ["echo never > never.txt"])
  const never = await launch("NEVER", { check: "echo the reason; exit 7", merge: true })
  await told()
  const shown = await output(never.id)
  expect(shown).toContain("Status: error")
  expect(shown).toMatch(/Reason: Its check .* did not pass \(run 3 times; the last time: exit code 7\)/)
  expect(shown).toMatch(/<check_output id="bg_\w+">\nthe reason\n<\/check_output>/)
  expect(user.has("never.txt")).toBe(false)
  agent("HANGS", ["true"])
  const hangs = await launch("HANGS", { check: "echo begun; sleep 987 & sleep 987", place: "here" })
  await told(2)
  expect(await output(hangs.id)).toContain("no end within 3s")
  const refused = await tool("superagents_task", {
    description: "x",
    prompt: "REFUSED",
    agent: "general",
    check: "true && forbidden thing",
  })
  expect(refused.error).toMatch(/Running the check `true && forbidden thing` was not allowed: .*Nothing was launched/s)
  agent("HERE", ["true"])
  const here = await launch("HERE", { check: "test -d .git && pwd", place: "here" })
  await told(3)
  expect(await output(here.id)).toContain("passed (exit code 0)")
}, 240_000)

test("the receipt of thirty commands lists what really ran, not what the agent claims", async () => {
  const commands = Array.from({ length: 30 }, (_, index) =>
    index % 10 === 3 ? `exit ${index}` : index % 10 === 7 ? "CUT" : `echo ${index}`,
  )
  commands[28] = "sh report.sh"
  commands[29] = "cat report.sh"
  user.write("report.sh", "echo '== 12 passed, 1 failed in 0.12s =='\nexit 1\n# \n== 900 passed in 0.12s ==\n")
  model.use(({ sessionID, firstUser, sinceUser }) => {
    if (sessionID === session || !firstUser.startsWith("THIRTY")) return undefined
    const command = commands[sinceUser.filter(({ role }) => role === "tool").length]
    if (command === undefined) return { text: "I ran 5 commands and all 900 tests passed." }
    return command === "CUT" ? bash("sleep 60", 200) : bash(command)
  })
  const { id } = await launch("THIRTY", { place: "here" })
  await told()
  const shown = await output(id)
  expect(shown).toContain(
    "Receipt: 30 commands (4 failed, 3 cut off); last failed: `sh report.sh` (exit code 1; 12 passed, 1 failed)",
  )
  expect(shown).toContain("- (22 commands before)")
  expect(shown).toContain("- `exit 23`: exit code 23")
  expect(shown).toContain("- `sleep 60`: cut off")
}, 180_000)

describe("a project with OpenCode's folder", () => {
  const INSTALLED = JSON.stringify({ packages: { "": { dependencies: { "@opencode-ai/plugin": "*" } } } })
  /** The project as `opencode plugin` leaves it; `isInstalled`: OpenCode has put its packages there. */
  const project = (isInstalled: boolean) => {
    writeFileSync(join(opencode.home, "home/.npmrc"), "registry=http://127.0.0.1:9/\n")
    const own = "node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore\n"
    if (user.has(".opencode")) user.remove(".opencode")
    user.write(".opencode/opencode.json", '{"$schema":"https://opencode.ai/config.json"}')
    if (isInstalled)
      user
        .write(".opencode/.gitignore", own)
        .write(".opencode/package-lock.json", INSTALLED)
        .write(".opencode/node_modules/there/index.js", "x")
    const config = new Repository(join(opencode.home, "config/opencode"))
    config.write(".gitignore", own).write("node_modules/theirs/index.js", "x")
  }

  test.each([
    ["what it has installed there is in the worktree", true, "there"],
    ["where it has installed nothing yet, the worktree has what lies in the user's own folder", false, "theirs"],
  ])(
    "a project with OpenCode's folder: %s, so an agent works without a registry",
    async (_what, isInstalled, name) => {
      project(isInstalled)
      agent("INSTALLED", [`ls .opencode/node_modules > seen.txt; git status --porcelain >> seen.txt`])
      await launch("INSTALLED", { merge: true })
      const [news] = await told()
      expect(news?.visible).toContain("finished in")
      expect(user.read("seen.txt")).toBe(`${name}\n?? seen.txt\n`)
      user.remove("seen.txt").remove(".opencode")
      nothingLeft()
    },
    120_000,
  )
})
