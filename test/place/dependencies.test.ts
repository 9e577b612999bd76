import { execFileSync, spawnSync } from "node:child_process"
import {
  chmodSync,
  closeSync,
  constants,
  existsSync,
  lstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  statSync,
} from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import type { PreparedPlace } from "../../src/runtime/places/place.ts"
import { Repository } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** What a worktree gets of what git ignores, so that its project's tests run there. */

let bench: Bench
let user: Repository

beforeEach(() => {
  bench = new Bench()
  user = bench.user
})
afterEach(() => {
  vi.unstubAllEnvs()
  bench.close()
})

const json = (value: unknown) => JSON.stringify(value)

/** A worktree for a task, and what its agent is told of it. */
async function entered(
  folder = user.top,
  id = ID,
): Promise<PreparedPlace & { child: Repository; lacks: string | undefined }> {
  const lacks = await bench.places.capture(id, folder)
  const ready = await bench.places.enter({ taskID: id, folder, timeLimit: 0 })
  return { ...ready, child: new Repository(ready.directory), lacks }
}

/** Runs a command as an agent does; what it wrote, or how it failed. */
const run = (child: Repository, command: string, env: Record<string, string> = {}): string =>
  execFileSync("sh", ["-c", `exec 2>&1; ${command}`], {
    cwd: child.top,
    encoding: "utf8",
    env: { ...process.env, ...env },
  })

/** A worktree's work must be what the agent wrote alone, and none of the user's files may change meanwhile. */
async function onlyWork(before: Record<string, string>, files: readonly string[]) {
  const archived = await bench.places.archive(ID, user.top)
  expect(archived).toMatchObject({ files, unsaved: [] })
  expect(user.state()).toEqual(before)
  await bench.places.merge(ID, user.top)
  expect(bench.leftovers()).toEqual([])
}

/** A project of npm's with a package in its node_modules, and a script of it. */
function npmProject() {
  user
    .write(".gitignore", "node_modules\npackage-lock.json\n")
    .write("package.json", json({ name: "p", devDependencies: { greet: "1" }, scripts: { test: "greet" } }))
    .commit()
  user
    .write("package-lock.json", json({ lockfileVersion: 3 }))
    .write("node_modules/greet/package.json", json({ name: "greet", version: "1.0.0", bin: "cli.js" }))
    .write("node_modules/greet/index.js", "module.exports = 'hello'\n")
    .write("node_modules/greet/cli.js", "#!/usr/bin/env node\nconsole.log(require('greet'))\n", 0o755)
    .write("node_modules/.bin/keep", "")
    .link("node_modules/.bin/greet", "../greet/cli.js")
}

describe("an npm project", () => {
  test("an npm project runs its tests in a worktree at once without changing the user's files or the merge", async () => {
    npmProject()
    const before = user.state()
    const { child, preface, lacks } = await entered()
    expect(run(child, "npm test --offline")).toContain("hello")
    expect(child.read("package-lock.json")).toBe(user.read("package-lock.json"))
    expect(statSync(join(child.top, "node_modules/greet/index.js")).nlink).toBe(1)
    expect(preface).toContain(" Of what git ignores it has node_modules, package-lock.json.")
    expect(lacks).toBeUndefined()
    child.sh("echo \"module.exports = 'broken'\" > node_modules/greet/index.js")
    child.write("mine.txt", "x").sh("echo >> node_modules/.bin/greet")
    await onlyWork(before, ["mine.txt"])
    expect(user.has("mine.txt")).toBe(true)
  })

  test("dependencies placed in a worktree stay out of the agent's work even if the agent commits them", async () => {
    npmProject()
    const before = user.state()
    const { child } = await entered()
    child.write(".gitignore", "").write("mine.txt", "x")
    child.git("add", "--all", "--force")
    child.git("commit", "--quiet", "--message", "all of it")
    await onlyWork(before, [".gitignore", "mine.txt"])
  })

  test("a worktree gets the packages of npm workspaces with links to its own files", async () => {
    user
      .write(".gitignore", "node_modules\n")
      .write("package.json", json({ name: "root", private: true, workspaces: ["packages/*"] }))
      .write("packages/a/package.json", json({ name: "a", version: "1.0.0", main: "index.js" }))
      .write("packages/a/index.js", "module.exports = 'a of ' + __dirname\n")
      .write("packages/b/package.json", json({ name: "b", version: "1.0.0", dependencies: { a: "1" } }))
      .commit()
    user.sh("npm install --offline --no-audit --no-fund --no-package-lock")
    user.write("packages/b/node_modules/own/index.js", "module.exports = 'own'\n")
    const before = user.state()
    const { child } = await entered(join(user.top, "packages/b"))
    expect(run(child, `node -p "require('a') + ' ' + require('own')"`).trim()).toBe(
      `a of ${join(child.top, "../a")} own`,
    )
    expect(user.state()).toEqual(before)
  })
})

test("a pnpm project in a worktree runs the worktree's files, not the original folder's", async () => {
  user
    .write(".gitignore", "node_modules\n")
    .write("pnpm-lock.yaml", "lockfileVersion: '9.0'\n")
    .write("package.json", json({ name: "p", dependencies: { lib: "workspace:*" } }))
    .write("lib/package.json", json({ name: "lib", version: "1.0.0" }))
    .write("lib/index.js", "module.exports = __dirname\n")
    .commit()
  user
    .write("node_modules/.modules.yaml", "virtualStoreDir: .pnpm\n")
    .write("node_modules/.pnpm/dep@1.0.0/node_modules/dep/index.js", "module.exports = 'dep'\n")
    .write(
      "node_modules/.bin/tool",
      `#!/bin/sh\nexport NODE_PATH="${user.top}/node_modules/.pnpm"\necho "$NODE_PATH"\n`,
      0o755,
    )
    .link("node_modules/dep", join(user.top, "node_modules/.pnpm/dep@1.0.0/node_modules/dep"))
    .link("node_modules/lib", join(user.top, "lib"))
  const before = user.state()
  const { child } = await entered()
  expect(run(child, `node -p "require('lib') + ' ' + require('dep')"`).trim()).toBe(`${join(child.top, "lib")} dep`)
  expect(run(child, "node_modules/.bin/tool").trim()).toBe(join(child.top, "node_modules/.pnpm"))
  child.sh("echo broken > node_modules/dep/index.js; echo broken > node_modules/lib/index.js")
  await onlyWork(before, ["lib/index.js"])
})

describe("a link out of the repository", () => {
  test("a link out of the repository is replaced by a copy, so writing through it does not change the original", async () => {
    npmProject()
    const linked = new Repository(join(bench.folder, "linked"))
    linked.write("index.js", "module.exports = 'linked'\n").write("lib/a.js", "a").link("also.js", "lib/a.js")
    linked.link("out.js", join(bench.folder, "nowhere"))
    user.link("node_modules/linked", linked.top)
    const [before, theirs] = [user.state(), linked.files()]
    const { child, preface } = await entered()
    expect(lstatSync(join(child.top, "node_modules/linked")).isDirectory()).toBe(true)
    expect(run(child, `node -p "require('linked')"`).trim()).toBe("linked")
    expect(preface).not.toContain("Not brought")
    child.sh("echo x > node_modules/linked/index.js; echo x > node_modules/linked/also.js")
    await onlyWork(before, [])
    expect(linked.files()).toEqual(theirs)
  })

  test("a link into a package store is left out, and agent and check are told the option that brings it", async () => {
    npmProject()
    const store = new Repository(join(bench.folder, "store/node_modules/far"))
    store.write("index.js", "x")
    user.link("node_modules/far", store.top)
    const { child, preface } = await entered()
    expect(child.has("node_modules/far")).toBe(false)
    const text =
      "Not brought into the worktree: node_modules/far (a link that leads out of the repository). The option worktree.setup names a command that installs it in each worktree."
    expect(preface).toContain(text)
    expect(await bench.places.lacks(ID, user.top)).toBe(text)
  })

  test("a link to a pipe, a device or another file system is left out", async () => {
    npmProject()
    user.sh("mkfifo ../pipe")
    const targets = { pipe: join(bench.folder, "pipe"), device: "/dev/null", system: "/proc/sys/fs" }
    for (const [name, target] of Object.entries(targets)) user.link(`node_modules/${name}`, target)
    const { child } = await entered()
    expect(Object.keys(targets).filter((name) => child.has(`node_modules/${name}`))).toEqual([])
  })

  test("a link whose target can be copied only in part is left out, with nothing that leads into the user's files", async () => {
    npmProject()
    const linked = new Repository(join(bench.folder, "linked")).write("a", "a")
    linked.link("b", join(linked.top, "a"))
    user.link("node_modules/linked", linked.top)
    const cp = run(user, "command -v cp").trim()
    const bin = new Repository(join(bench.folder, "bin"))
    bin.write("cp", `#!/bin/sh\n${cp} "$@"; case "$*" in *${linked.top}*) exit 1; esac\n`, 0o755)
    vi.stubEnv("PATH", `${bin.top}:${process.env.PATH}`)
    const { child, lacks } = await entered()
    expect(child.has("node_modules/greet")).toBe(true)
    expect(existsSync(join(child.top, "node_modules/linked"))).toBe(false)
    expect(await bench.places.lacks(ID, user.top)).toContain("node_modules/linked (a link that leads out")
    expect(lacks).toBeUndefined()
  })

  test("a link in place of the whole package folder is followed", async () => {
    npmProject()
    user.sh(`mv node_modules ${bench.folder}/shared && ln -s ${bench.folder}/shared node_modules`)
    const { child } = await entered()
    expect(run(child, "npm test --offline")).toContain("hello")
    child.sh("echo broken > node_modules/greet/index.js")
    expect(readFileSync(join(bench.folder, "shared/greet/index.js"), "utf8")).toContain("hello")
  })
})

/** Ends reads of pipes, which would wait for ever, and fails then. */
async function released<Value>(work: Promise<Value>): Promise<Value> {
  let isRead = false
  const timer = setInterval(() => {
    const found = spawnSync("find", [bench.folder, "-type", "p"], { encoding: "utf8" }).stdout
    for (const pipe of found.split("\n").filter(Boolean))
      try {
        // Without a reader, this open fails.
        closeSync(openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK))
        isRead = true
      } catch {}
  }, 50)
  const value = await work.finally(() => clearInterval(timer))
  expect(isRead).toBe(false)
  return value
}

describe("a Python environment", () => {
  const ignores = () => user.write(".gitignore", ".venv/\n").write("pyproject.toml", '[project]\nname = "p"\n')

  test("a Python environment made by venv runs the worktree's own sources and scripts", async () => {
    ignores().write("src/mine.py", "WHERE = __file__\n").commit()
    user.sh("python3 -m venv --without-pip .venv")
    const packages = join(readdirOf(".venv/lib"), "site-packages")
    user.write(`${packages}/__editable__.p.pth`, `${user.top}/src\n`)
    user.write(`${packages}/dep.py`, "WHERE = __file__\n")
    user.write(
      ".venv/bin/show",
      `#!${user.top}/.venv/bin/python3\nimport mine, dep\nprint(mine.WHERE, dep.WHERE)\n`,
      0o755,
    )
    const before = user.state()
    const { child } = await entered()
    const own = `${child.top}/src/mine.py ${child.top}/${packages}/dep.py`
    expect(run(child, ".venv/bin/show").trim()).toBe(own)
    expect(run(child, '. .venv/bin/activate; show; echo "$VIRTUAL_ENV"').trim()).toBe(`${own}\n${child.top}/.venv`)
    child.sh(`echo broken > ${packages}/dep.py`)
    await onlyWork(before, [])
  })

  test("a Python environment made by uv does not share uv's cache with the worktree", async () => {
    ignores().write("uv.lock", "version = 1\n").commit()
    const cache = new Repository(join(bench.folder, "cache/archive"))
    cache.write("dep/__init__.py", "X = 1\n")
    user
      .write(".venv/pyvenv.cfg", "home = /usr/bin\nuv = 0.5.0\n")
      .write(".venv/bin/activate", `VIRTUAL_ENV='${user.top}/.venv'\n`)
    user.write(".venv/lib/python3.11/site-packages/keep", "").link(".venv/bin/python", "/usr/bin/env")
    user.link(".venv/lib/python3.11/site-packages/dep", join(cache.top, "dep"))
    const { child } = await entered()
    expect(readlinkSync(join(child.top, ".venv/bin/python"))).toBe("/usr/bin/env")
    child.sh("echo broken > .venv/lib/python3.11/site-packages/dep/__init__.py")
    expect(cache.read("dep/__init__.py")).toBe("X = 1\n")
  })

  test("a Python environment whose script is a pipe holds up no worktree", async () => {
    ignores().commit()
    user.write(".venv/pyvenv.cfg", "home = /usr/bin\n").write(".venv/bin/keep", "")
    user.sh("mkfifo .venv/bin/activate")
    expect((await released(entered())).child.has(".venv/bin/keep")).toBe(true)
  })

  const readdirOf = (name: string) =>
    join(name, execFileSync("ls", [join(user.top, name)], { encoding: "utf8" }).trim())
})

test.each([
  [
    "cargo",
    "Cargo.toml",
    "vendor/\n/.cargo/\nCargo.lock\ntarget/\n",
    ["vendor/dep/src/lib.rs", ".cargo/config.toml", "Cargo.lock"],
    ["target/debug/x"],
  ],
  ["go", "go.mod", "vendor/\ngo.sum\n", ["vendor/modules.txt", "go.sum"], []],
  ["composer", "composer.json", "vendor/\ncomposer.lock\n", ["vendor/autoload.php", "composer.lock"], []],
  [
    "bundler",
    "Gemfile",
    "vendor/bundle\n.bundle\nGemfile.lock\n",
    ["vendor/bundle/ruby/x.rb", ".bundle/config", "Gemfile.lock"],
    [],
  ],
  ["yarn", "package.json", ".pnp.*\n.yarn/\nyarn.lock\n", [".pnp.cjs", ".yarn/cache/a.zip", "yarn.lock"], []],
  ["bun", "package.json", "node_modules\nbun.lock\n", ["node_modules/a/index.js", "bun.lock"], []],
  ["poetry", "pyproject.toml", ".venv\npoetry.lock\n", [".venv/pyvenv.cfg", "poetry.lock"], []],
  ["none that is known", "Makefile", "vendor/\nnode_modules\n", [], ["vendor/a", "node_modules/b/index.js"]],
] as const)(
  "a project of %s: its worktree gets what is installed, not what is built",
  async (_kind, manifest, ignored, brought, not) => {
    user.write(manifest, "{}").write(".gitignore", ignored).commit()
    for (const name of [...brought, ...not]) user.write(name, name)
    const before = user.state()
    const { child } = await entered()
    expect(brought.filter((name) => !child.has(name))).toEqual([])
    expect(not.filter((name) => child.has(name))).toEqual([])
    await onlyWork(before, [])
  },
)

describe("a worktree's missing packages", () => {
  test("packages that a worktree lacks are reported to the parent and the agent, with the option that brings them", async () => {
    user
      .write("package.json", json({ devDependencies: { vitest: "1" } }))
      .write(".gitignore", "node_modules\n")
      .commit()
    const { preface, lacks } = await entered()
    const text =
      "node_modules is not in the original folder, so the worktree has none. The option worktree.setup names a command that installs it in each worktree."
    expect(lacks).toBe(text)
    expect(preface).toContain(text)
    expect(await bench.places.lacks(ID, user.top)).toBe(text)
  })

  test.each([
    ["packages that nothing asks for", "package.json", json({ scripts: { test: "node --test" } })],
    ["packages that may be installed elsewhere", "requirements.txt", "flask\n"],
  ])("a worktree is not said to lack %s", async (_what, manifest, content) => {
    user.write(manifest, content).commit()
    const { preface, lacks } = await entered()
    expect([lacks, preface.includes("worktree.setup")]).toEqual([undefined, false])
  })

  test("a manifest that is a pipe, leads to a device or is huge holds up no worktree", async () => {
    user.write("a", "a").commit()
    user.sh("mkfifo pipe")
    const manifest = json({ dependencies: { x: "1" } }).padEnd(2e6)
    for (const make of [
      () => user.link("package.json", "pipe"),
      () => user.link("package.json", "/dev/null"),
      () => user.write("package.json", manifest),
    ]) {
      make()
      const lacks = await released(bench.places.capture(ID, user.top))
      expect(lacks).toBeUndefined()
      user.remove("package.json")
    }
  })

  test("dependencies larger than one worktree's limit are reported as missing, and no copy is begun", async () => {
    npmProject()
    user.sh("truncate -s 0 node_modules/big && dd if=/dev/zero of=node_modules/big bs=1M count=3 status=none")
    bench.places = bench.worktrees({ bounds: { one: 2e6, all: 1e9 } })
    const { child, preface, lacks } = await entered()
    expect(child.has("node_modules")).toBe(false)
    expect(lacks).toMatch(/^The worktree has no node_modules, package-lock.json: they are 3 MB, more than the 2 MB/)
    expect(preface).toContain(lacks)
  })

  test("dependencies beyond the limit of all worktrees together, in any repository, are reported as missing", async () => {
    npmProject()
    user.sh("dd if=/dev/zero of=node_modules/big bs=1M count=3 status=none")
    bench.places = bench.worktrees({ bounds: { one: 1e9, all: 7e6 } })
    const ids = ["bg_bbbbbbbb", "bg_cccccccc", "bg_dddddddd"]
    const all = await Promise.all(ids.map((id) => entered(user.top, id)))
    expect(all.filter(({ child }) => child.has("node_modules"))).toHaveLength(2)
    const without = all.find(({ child }) => !child.has("node_modules"))
    expect(without?.preface).toContain("the dependencies of all worktrees together would be more than 7 MB")
    const other = ids.find((id) => !without?.directory.includes(id)) ?? ""
    await bench.places.archive(other, user.top)
    expect((await entered(user.top, "bg_eeeeeeee")).child.has("node_modules")).toBe(true)
  })

  test("a worktree with the option `none` has no dependencies, and only a failing check is told so", async () => {
    npmProject()
    bench.places = bench.worktrees({ settings: { setup: "", copy: [], dependencies: "none" } })
    const { child, preface, lacks } = await entered()
    expect([child.has("node_modules"), lacks, preface.includes("node_modules")]).toEqual([false, undefined, false])
    expect(await bench.places.lacks(ID, user.top)).toBe(
      'The worktree has no node_modules, package-lock.json (option worktree.dependencies is "none").',
    )
  })

  test("a worktree with a setup command gets its dependencies only from that command", async () => {
    npmProject()
    bench.places = bench.worktrees({ settings: { setup: "mkdir node_modules", copy: [], dependencies: "auto" } })
    const { child, lacks } = await entered()
    expect([child.has("node_modules"), child.has("node_modules/greet"), lacks]).toEqual([true, false, undefined])
  })
})

test("a read-only folder and a stopped run leave no files of the worktree behind", async () => {
  npmProject()
  chmodSync(join(user.top, "node_modules/greet"), 0o555)
  await onlyWork(user.state(), (await entered()).child.has("x") ? ["x"] : [])
  chmodSync(join(user.top, "node_modules/greet"), 0o755)
  await bench.places.capture(ID, user.top)
  const signal = AbortSignal.abort()
  await expect(bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0, signal })).rejects.toThrow("stopped")
  expect(bench.leftovers()).toEqual([])
})

test("a later run gets fresh dependencies together with its own earlier work", async () => {
  npmProject()
  await bench.worked((child) => child.write("mine.txt", "x").sh("echo broken > node_modules/greet/index.js"))
  const again = await bench.ready({ again: true })
  expect([again.read("mine.txt"), run(again, "npm test --offline").includes("hello")]).toEqual(["x", true])
})

describe("OpenCode's own packages", () => {
  const configFolder = () => ({
    name: ".opencode",
    installs: [".gitignore", "package.json", "package-lock.json", "bun.lock", "node_modules"],
    own: join(bench.folder, "own"),
  })
  const IGNORED = "node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore\n"
  const installed = (repository: Repository, folder: string) =>
    repository
      .write(`${folder}/.gitignore`, IGNORED)
      .write(`${folder}/package.json`, "{}")
      .write(`${folder}/package-lock.json`, "{}")
      .write(`${folder}/node_modules/x/index.js`, "x")

  test.each([
    ["", "auto"],
    ["true", "none"],
  ] as const)(
    "OpenCode's own packages are copied with setup %j and dependencies %j, and count as no change",
    async (setup, dependencies) => {
      bench.places = bench.worktrees({ configFolder: configFolder(), settings: { setup, copy: [], dependencies } })
      user.write(".opencode/opencode.json", "{}").write("packages/a/b", "b").commit()
      installed(user, ".opencode")
      const before = user.state()
      const { child } = await entered(join(user.top, "packages/a"))
      const top = new Repository(join(child.top, "../.."))
      expect(top.read(".opencode/node_modules/x/index.js")).toBe("x")
      expect([top.has(".opencode/package.json"), top.has(".opencode/package-lock.json")]).toEqual([true, true])
      expect(top.git("status", "--porcelain")).toBe("")
      await onlyWork(before, [])
    },
  )

  test("OpenCode's packages come from the user's own folder only if the project has no package list there", async () => {
    bench.places = bench.worktrees({ configFolder: configFolder() })
    installed(new Repository(bench.folder), "own")
    user.write(".opencode/opencode.json", "{}").commit()
    const { child } = await entered()
    expect(child.read(".opencode/node_modules/x/index.js")).toBe("x")
    expect(child.git("status", "--porcelain")).toBe("")
    await bench.places.archive(ID, user.top)
    user.write(".opencode/package.json", json({ dependencies: { other: "1" } })).commit()
    expect((await entered()).child.has(".opencode/node_modules")).toBe(false)
  })

  test("OpenCode's packages are not copied if the project has no OpenCode folder", async () => {
    bench.places = bench.worktrees({ configFolder: configFolder() })
    installed(new Repository(bench.folder), "own")
    user.write("a", "a").commit()
    expect(existsSync(join((await entered()).child.top, ".opencode"))).toBe(false)
  })

  // With a part of it in a worktree, OpenCode would look for its packages there and install them.
  test("no part of OpenCode's packages is copied if git ignores all of that folder", async () => {
    bench.places = bench.worktrees({ configFolder: configFolder() })
    user.write(".opencode/.gitignore", "*\n").write(".opencode/package-lock.json", "{}").write("a", "a").commit()
    expect(existsSync(join((await entered()).child.top, ".opencode"))).toBe(false)
  })
})
