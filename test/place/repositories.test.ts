import { execFileSync } from "node:child_process"
import { readdirSync, symlinkSync, truncateSync, utimesSync } from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import { Repository } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** Repositories that are set up in an unusual way: nothing of the user's is touched, and no work is lost. */

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

/** All that lies in the repository of a user's, by content: what was never to go in is in none of it. */
const stored = () =>
  user
    .git("cat-file", "--batch-all-objects", "--batch-check")
    .split("\n")
    .flatMap((line) => {
      const [oid = "", type] = line.split(" ")
      return type === "blob" ? [user.git("cat-file", "blob", oid)] : []
    })

describe("a project that is a submodule", () => {
  let project: Repository

  beforeEach(() => {
    bench.repository("library").write("lib.txt", "v1\n").write("other.txt", "o\n").commit()
    user.write("a", "a\n").commit()
    user.git("submodule", "add", "--quiet", join(bench.folder, "library"), "sub")
    user.commit()
    project = new Repository(join(user.top, "sub"))
  })

  const ready = () => bench.ready({ folder: project.top })

  test("a task in a submodule is merged back like any other task", async () => {
    const child = await ready()
    expect(child.files()).toEqual(project.files())
    child.write("lib.txt", "theirs\n").write("new", "n\n")
    expect(await bench.places.archive(ID, project.top)).toMatchObject({ files: ["lib.txt", "new"] })
    expect(await bench.places.merge(ID, project.top)).toMatchObject({ kind: "merged", files: ["lib.txt", "new"] })
    expect(project.read("lib.txt")).toBe("theirs\n")
  })

  test("a worktree of a submodule uses its own files although the configuration names another worktree folder", async () => {
    project.git("config", "extensions.worktreeConfig", "true")
    const before = user.state()
    const child = await ready()
    expect(child.git("rev-parse", "--show-toplevel").trim()).toBe(child.top)
    expect(child.git("status", "--porcelain")).toBe("")
    child.write("lib.txt", "theirs\n").git("add", "lib.txt")
    child.git("commit", "--quiet", "--message", "the agent's")
    child.write("new", "n\n")
    expect(await bench.places.archive(ID, project.top)).toMatchObject({ files: ["lib.txt", "new"] })
    expect(bench.leftovers()).toEqual([])
    expect(user.state()).toEqual(before)
    expect(await bench.places.merge(ID, project.top)).toMatchObject({ kind: "merged", files: ["lib.txt", "new"] })
    expect(Object.keys(project.files()).sort()).toEqual(["lib.txt", "new", "other.txt"])
  })

  test("no worktree is made when git would work elsewhere, and the error says why", async () => {
    const linked = join(bench.folder, "linked")
    project.git("worktree", "add", "--quiet", "--detach", linked)
    project.git("config", "extensions.worktreeConfig", "true")
    await expect(bench.ready({ folder: linked })).rejects.toThrow(
      /^A worktree could not be made: git takes .*\/\.git\/modules\/sub for the top of .*\/linked.*core\.worktree/,
    )
  })
})

describe("an agent's own git folder", () => {
  const bare = (at: string) => execFileSync("git", ["init", "--quiet", "--bare", at])

  test("a git folder that an agent has made is reported and not merged, and other work is", async () => {
    user.write("a", "a\n").commit()
    const kept = await bench.worked((child) => {
      bare(join(child.top, "made.git"))
      child.write("b", "b\n").write("made.git/packed-refs", "").write("hooks/mine", "h\n")
    })
    expect(kept.files).toContain("made.git/HEAD")
    const result = await bench.places.merge(ID, user.top)
    expect(result).toEqual({ kind: "merged", files: ["b", "hooks/mine"], submodules: ["made.git"] })
    expect(Object.keys(user.files()).sort()).toEqual(["a", "b", "hooks/mine"])
  })

  test("a git folder that an agent makes at the top of its worktree leaves the user's files unchanged", async () => {
    user.write("a", "a\n").commit()
    await bench.worked((child) => bare(child.top))
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "nothing" })
    expect(readdirSync(user.top).sort()).toEqual([".git", "a"])
  })

  test("changes in a git folder that the project already has are merged like other files", async () => {
    bare(join(user.top, "fixture.git"))
    user.write("a", "a\n").commit()
    await bench.worked((child) => child.write("fixture.git/HEAD", "ref: refs/heads/other\n"))
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["fixture.git/HEAD"] })
  })
})

describe("a home folder of dotfiles", () => {
  beforeEach(() => {
    user.write(".bashrc", "b\n").write("tools/run", "r\n").commit()
    user.git("config", "status.showUntrackedFiles", "no")
    user.write(".ssh/id", "ssh key\n").write("tools/new", "new tool\n").write("tools/deep/er", "d\n")
    user.write(".local/share/opencode/superagents/record.key", "record key\n").write(".bashrc", "changed\n")
    vi.stubEnv("XDG_DATA_HOME", join(user.top, ".local/share"))
  })

  test("a task in a dotfiles repository sees only tracked files, and untracked ones are never stored", async () => {
    const child = await bench.ready()
    expect(Object.keys(child.files()).sort()).toEqual([".bashrc", "tools/run"])
    expect(child.read(".bashrc")).toBe("changed\n")
    child.write("made", "m\n").write(".bashrc", "theirs\n")
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: [".bashrc", "made"], unsaved: [] })
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: [".bashrc", "made"] })
    expect([user.read("made"), user.read(".ssh/id")]).toEqual(["m\n", "ssh key\n"])
    expect(stored()).toEqual(expect.arrayContaining(["changed\n", "m\n"]))
    for (const secret of ["ssh key\n", "record key\n", "new tool\n"]) expect(stored()).not.toContain(secret)
  })

  test("a task in a subfolder of a dotfiles repository sees that subfolder's untracked files and no others", async () => {
    const folder = join(user.top, "tools")
    const child = await bench.ready({ folder })
    expect(Object.keys(child.files()).sort()).toEqual(["deep/er", "new", "run"])
    child.write("new", "theirs\n").write("../made", "m\n")
    await bench.places.archive(ID, folder)
    expect(await bench.places.merge(ID, folder)).toMatchObject({ kind: "merged", files: ["made", "tools/new"] })
    expect(user.read("tools/new")).toBe("theirs\n")
    expect(stored()).not.toContain("ssh key\n")
  })

  test("a merge keeps the user's untracked file when an agent made one with the same name", async () => {
    await bench.worked((child) => child.write(".ssh/id", "theirs\n"))
    expect(await bench.places.merge(ID, user.top)).toEqual({
      kind: "conflict",
      files: [".ssh/id"],
      advice: ".ssh/id is there, and git does not track it: move it away, then merge again.",
    })
    expect(user.read(".ssh/id")).toBe("ssh key\n")
  })
})

test("OpenCode's own data below a project is never stored in the repository, even if tracked", async () => {
  vi.stubEnv("XDG_DATA_HOME", join(user.top, "data"))
  vi.stubEnv("XDG_STATE_HOME", join(user.top, "state"))
  user.write("a", "a\n").write("data/opencode/tracked", "old\n").commit()
  user.write("data/opencode/tracked", "session\n").write("data/opencode/superagents/record.key", "record key\n")
  user.write("state/opencode/log", "log\n").write("data/mine", "mine\n")
  const child = await bench.ready()
  expect(Object.keys(child.files()).sort()).toEqual(["a", "data/mine", "data/opencode/tracked"])
  child.write("a", "theirs\n")
  await bench.places.archive(ID, user.top)
  expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  for (const secret of ["session\n", "record key\n", "log\n"]) expect(stored()).not.toContain(secret)
})

describe("untracked files over the size limit", () => {
  const huge = (repository: Repository, name: string) => {
    repository.write(name, "")
    truncateSync(join(repository.top, name), 600 * 1024 * 1024)
  }

  test("of many files that are too large only some are told, each in one line", async () => {
    user.write("a", "a\n").commit()
    for (let nth = 0; nth < 120; nth++) huge(user, `huge\n${nth}`)
    const { notes = [] } = await bench.worked((child) => child.write("b", "b"))
    expect(notes).toEqual([expect.stringMatching(/^It worked without .*: huge \d+, .* and \d+ more$/)])
  })

  test("the user's untracked files that are too large are skipped unread and reported", async () => {
    user.write("a", "a\n").commit()
    huge(user, "huge.bin")
    user.write("small", "s\n")
    const before = user.state()
    await bench.places.capture(ID, user.top)
    const { preface, directory } = await bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0 })
    expect(preface).toContain("It lacks what could not be read or is too large: huge.bin.")
    const child = new Repository(directory)
    expect(Object.keys(child.files()).sort()).toEqual(["a", "small"])
    child.write("a", "theirs\n")
    const archived = await bench.places.archive(ID, user.top)
    expect(archived.notes).toEqual(["It worked without what could not be read or is too large: huge.bin"])
    expect(user.state()).toEqual(before)
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
    expect({ ...user.state(), a: "" }).toEqual({ ...before, a: "" })
  })

  test("an agent's file that is too large to be stored keeps its folder in place", async () => {
    user.write("a", "a\n").commit()
    const child = await bench.ready()
    huge(child, "huge.bin")
    child.write("a", "theirs\n")
    const archived = await bench.places.archive(ID, user.top)
    expect(archived).toMatchObject({ files: ["a"], unsaved: ["huge.bin"], held: child.top })
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  })
})

test("a repository with a line break in its path works like any other", async () => {
  user = bench.repository("pro\nject")
  user.write("a", "a\n").commit()
  const child = await bench.ready({ folder: user.top })
  child.write("a", "theirs\n")
  await bench.places.archive(ID, user.top)
  expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  expect(user.read("a")).toBe("theirs\n")
})

describe("files of a missing git filter", () => {
  const POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n"
  const PROGRAM = "superagents-no-such-program"

  beforeEach(() => {
    user.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n").write("a", "a\n")
    user.write("big.bin", POINTER).write("other.bin", POINTER).commit()
  })

  const configure = (form: string) => {
    user.git("config", "filter.lfs.clean", `${PROGRAM} clean -- %f`)
    user.git("config", "filter.lfs.smudge", `${PROGRAM} smudge -- %f`)
    if (form === "process") user.git("config", "filter.lfs.process", `${PROGRAM} filter-process`)
    if (form === "git") {
      user.git("config", "filter.lfs.clean", `git ${PROGRAM} clean %f`)
      user.git("config", "filter.lfs.smudge", `git ${PROGRAM} smudge %f`)
    }
    user.git("config", "filter.lfs.required", "true")
  }

  test.each(["process", "single", "git"])(
    "files of a git filter that is not installed stay pointers while the agent edits others (%s)",
    async (form) => {
      configure(form)
      const before = user.state()
      await bench.places.capture(ID, user.top)
      const { preface, directory } = await bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0 })
      expect(preface).toContain("The program of the git filter lfs is not installed")
      const child = new Repository(directory)
      expect(child.files()).toEqual(user.files())
      child.write("a", "theirs\n").write("new", "n\n")
      const archived = await bench.places.archive(ID, user.top)
      expect(archived).toMatchObject({ files: ["a", "new"], unsaved: [] })
      expect(archived.notes).toEqual([expect.stringMatching(/^The program of the git filter lfs is not installed/)])
      expect(user.state()).toEqual(before)
      expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a", "new"] })
      expect({ ...user.state(), a: "", new: "" }).toEqual({ ...before, a: "", new: "" })
    },
  )

  test("files of a git filter that is not installed are merged byte for byte when they were changed", async () => {
    configure("process")
    const [mine, theirs] = [Buffer.from([0, 1, 13, 10, 255]), Buffer.from([0, 2, 13, 10, 254])]
    user.write("big.bin", mine)
    const child = await bench.ready()
    expect(child.files()).toEqual(user.files())
    child.write("other.bin", theirs)
    await bench.places.archive(ID, user.top)
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["other.bin"] })
    const bytes = (content: Buffer) => `644 ${content.toString("base64")}`
    expect(user.files()).toMatchObject({ "big.bin": bytes(mine), "other.bin": bytes(theirs) })
  })

  test("a git filter that is installed but fails is an error because its files may hold secrets", async () => {
    user.write("big.bin", "changed\n")
    user.git("config", "filter.lfs.clean", "false")
    user.git("config", "filter.lfs.smudge", "cat")
    user.git("config", "filter.lfs.required", "true")
    await expect(bench.ready()).rejects.toThrow(/the program of the git filter lfs failed at big\.bin/i)
  })
})

describe("a project that git ignores", () => {
  beforeEach(() => {
    user.write(".gitignore", "ignored/\n").write("a", "a\n").commit()
    user.write("ignored/app/x", "x\n").write("own/.gitignore", "*\n").write("own/x", "x\n")
  })

  test.each(["ignored/app", "ignored", "own"])(
    "a task in a folder that git ignores is refused at launch: %s",
    async (folder) => {
      const before = user.state()
      await expect(bench.ready({ folder: join(user.top, folder) })).rejects.toThrow(
        new RegExp(
          `^A worktree could not be made: git ignores this folder \\(${folder}\\), so that the agent would see nothing`,
        ),
      )
      expect(user.state()).toEqual(before)
      expect(bench.leftovers()).toEqual([])
    },
  )

  test("a folder in which git tracks something, or would, does not count as ignored", async () => {
    user.git("add", "--force", "ignored/app/x")
    expect((await bench.ready({ folder: join(user.top, "ignored/app") })).files()).toEqual({ x: expect.any(String) })
    user.write("new/y", "y\n")
    const child = await bench.ready({ folder: join(user.top, "new"), id: "bg_bbbbbbbb" })
    expect(child.files()).toEqual({ y: expect.any(String) })
  })
})

/** Has each git be run through this line of shell, in which `$git` is the real one. */
function throughShell(line: string) {
  const git = execFileSync("sh", ["-c", "command -v git"], { encoding: "utf8" }).trim()
  const bin = new Repository(join(bench.folder, "bin"))
  bin.write("git", `#!/bin/sh\ngit=${git}\n${line}\n`, 0o755)
  vi.stubEnv("PATH", `${bin.top}:${process.env.PATH}`)
}

describe("a repository that git refuses", () => {
  test("a repository that belongs to another user is refused with advice on how to trust it", async () => {
    user.write("a", "a\n").commit()
    vi.stubEnv("GIT_CONFIG_GLOBAL", "/dev/null")
    throughShell('GIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec $git "$@"')
    await expect(bench.places.capture(ID, user.top)).rejects.toThrow(
      `A worktree could not be made: the repository at ${user.top} belongs to another user, so git refuses to work in it. If you trust it: git config --global --add safe.directory ${user.top}.`,
    )
  })
})

describe("ignored files of an agent", () => {
  beforeEach(() => {
    user.write(".gitignore", "dist/\n*.log\nnode_modules/\ncache/\n").write(".gitattributes", "* text=auto eol=crlf\n")
    user.write("a", "a\r\n").commit()
  })
  const REF = `refs/superagents-ignored/${ID}`
  const made = (child: Repository) =>
    child.write("dist/out.js", "made\n").write("dist/bin", Buffer.from([0, 13, 10, 255]), 0o755)

  test("ignored files that an agent makes are archived and reported, not merged, and restored on resume", async () => {
    const before = user.state()
    const archived = await bench.worked((child) => made(child).link("dist/link", "out.js"))
    expect(archived).toMatchObject({ files: [], unsaved: [] })
    expect(archived.notes).toEqual([
      `It made 3 files that git ignores: dist/bin, dist/link, dist/out.js (kept and not merged; git restore --overlay --source=${REF} :/ brings them)`,
    ])
    expect(await bench.places.archive(ID, user.top)).toEqual(archived)
    expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "nothing" })
    expect(user.state()).toEqual(before)
    const again = await bench.ready({ again: true })
    expect(again.files()).toMatchObject({
      "dist/bin": `755 ${Buffer.from([0, 13, 10, 255]).toString("base64")}`,
      "dist/out.js": `644 ${Buffer.from("made\n").toString("base64")}`,
      "dist/link": "-> out.js",
    })
    again.remove("dist/bin").write("dist/more.js", "more\n")
    const { notes } = await bench.places.archive(ID, user.top)
    expect(notes).toEqual([expect.stringMatching(/^It made a file that git ignores: dist\/more\.js \(kept/)])
    expect(user.git("ls-tree", "-r", "--name-only", REF)).toBe("dist/link\ndist/more.js\ndist/out.js\n")
    user.git("restore", "--overlay", `--source=${REF}`, ":/")
    expect(Object.keys(user.files())).toEqual(expect.arrayContaining(["a", ".gitignore", "dist/link", "dist/more.js"]))
    expect(user.git("status", "--porcelain")).toBe("")
    await bench.places.clear(user.top, [ID])
    expect(user.ours()).toEqual([])
  })

  test.each([
    ["is still behind the run's start", 3600],
    ["has passed the run's start again", 0.02],
  ])("ignored files that an agent makes after the clock was set back are archived when it %s", async (_when, ahead) => {
    const child = made(await bench.ready())
    const began = Date.now() / 1000 + ahead
    for (const file of [join(child.top, ".git"), `${child.top}.json`]) utimesSync(file, began, began)
    const { notes } = await bench.places.archive(ID, user.top)
    expect(notes).toEqual([expect.stringMatching(/^It made 2 files that git ignores: dist\/bin, dist\/out\.js \(kept/)])
    expect(user.git("ls-tree", "-r", "--name-only", REF)).toBe("dist/bin\ndist/out.js\n")
  })

  test("an ignored file whose name begins with a quote is archived, and so are the others", async () => {
    const archived = await bench.worked((child) =>
      child.write('"one.log', "one").write('"two".log', "2").write("two.log", "two"),
    )
    expect(archived.notes).toEqual([
      expect.stringMatching(/^It made 3 files that git ignores: .* \(kept and not merged/),
    ])
    const again = await bench.ready({ again: true })
    expect(['"one.log', '"two".log', "two.log"].map((name) => again.read(name))).toEqual(["one", "2", "two"])
  })

  test("ignored files that the plugin copied or that tools create do not count as the agent's", async () => {
    user.write("cache/mine", "mine\n").write("my.log", "log\n")
    bench.places = bench.worktrees({
      settings: { setup: "mkdir dist; echo set up > dist/up", copy: ["cache", "*.log"], dependencies: "auto" },
    })
    const archived = await bench.worked((child) =>
      child.write("node_modules/x/index.js", "x").write("dist/__pycache__/y.pyc", "y").write("a", "theirs\r\n"),
    )
    expect(archived.notes).toBeUndefined()
    const { notes } = await bench.worked((child) => child.write("cache/mine", "changed\n"), { id: "bg_bbbbbbbb" })
    expect(notes).toEqual([expect.stringMatching(/^It made a file that git ignores: cache\/mine \(kept/)])
    expect(user.read("cache/mine")).toBe("mine\n")
  })

  test("many ignored files of an agent are reported, including how many were too large to store", async () => {
    const archived = await bench.worked((child) => {
      made(child).write("a", "theirs\r\n").write("dist/huge", "")
      truncateSync(join(child.top, "dist/huge"), 30 * 1024 * 1024)
      for (let nth = 0; nth < 1100; nth++) child.write(`dist/many/${nth}.js`, "m")
    })
    expect(archived).toMatchObject({ files: ["a"], unsaved: [] })
    expect(archived.notes).toEqual([
      expect.stringMatching(
        /^It made 1103 files that git ignores: dist\/bin, dist\/huge, dist\/many\/0\.js and 1,100 more \(kept and not merged; .*; 103 could not be kept: too many, too large or not readable\)$/,
      ),
    ])
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  })
})

test("a check in a worktree never runs the user's own files through absolute links in copied folders", async () => {
  user.write(".gitignore", "node_modules/\n").write("packages/lib/index.js", "module.exports = 1\n").write("a", "a\n")
  user.commit()
  const store = "node_modules/.pnpm/dep@1/node_modules/dep"
  user.write(`${store}/index.js`, "module.exports = 1\n").write("../outside/index.js", "module.exports = 1\n")
  symlinkSync(user.top, join(bench.folder, "alias"))
  user
    .link("node_modules/lib", join(user.top, "packages/lib"))
    .link("node_modules/dep", join(user.top, store))
    .link("node_modules/aliased", join(bench.folder, "alias/packages/lib"))
    .link("node_modules/near", "../packages/lib")
    .link("node_modules/out", join(bench.folder, "outside"))
    .link("node_modules/self", user.top)
    .link("node_modules/nowhere", join(user.top, "no/such"))
  bench.places = bench.worktrees({ settings: { setup: "", copy: ["node_modules"], dependencies: "auto" } })
  const child = await bench.ready()
  child.write("packages/lib/index.js", "throw new Error('broken')\n")
  for (const name of ["lib", "aliased", "near"])
    expect(() => child.sh(`node -e 'require("${name}")'`), name).toThrow("broken")
  child.sh(`node -e 'require("dep")'`)
  child.write(`${store}/index.js`, "throw new Error('broken')\n")
  expect(() => child.sh(`node -e 'require("dep")'`)).toThrow("broken")
  const links = Object.entries(child.files()).filter(([, content]) => content.startsWith("-> "))
  const leadIntoUsers = links.filter(([, target]) => target.startsWith(`-> ${user.top}`))
  expect(leadIntoUsers).toEqual([])
  expect(child.files()["node_modules/out"]).toBe(`-> ${join(bench.folder, "outside")}`)
  expect(user.read(`${store}/index.js`)).toBe("module.exports = 1\n")
  expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: ["packages/lib/index.js"] })
})
