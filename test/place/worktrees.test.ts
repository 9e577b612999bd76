import { execFileSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import { Repository } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

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

/** A repository in which everything is: committed, staged, changed, untracked and ignored files. */
function dirty() {
  user
    .write(".gitignore", "ignored/\n*.env\n")
    .write("plain.txt", "one\ntwo\nthree\nfour\nfive\n")
    .write("staged.txt", "before\n")
    .write("gone.txt", "going\n")
    .write("tool.sh", "#!/bin/sh\n", 0o755)
    .write("docs/with space.md", "text\n")
  user.commit()
  user.write("staged.txt", "staged\n").git("add", "staged.txt")
  user.write("staged.txt", "staged and changed\n")
  user.write("plain.txt", "one\ntwo\nthree\nfour\nFIVE\n")
  user.write("new\nline.txt", "untracked\n").write("private.txt", "secret\n", 0o600)
  user.write("ignored/cache", "cached\n").write("my.env", "KEY=1\n")
  user.remove("gone.txt")
}

describe("a fresh worktree", () => {
  test("a fresh worktree has all that the parent sees, uncommitted work included, and changes nothing of the user's", async () => {
    dirty()
    const before = user.state()
    const child = await bench.ready()
    const { "my.env": _env, "ignored/cache": _cache, ...seen } = user.files()
    // Git keeps who may run a file, not who may read it.
    expect(child.files()).toEqual({ ...seen, "private.txt": seen["private.txt"]?.replace("600", "644") })
    expect(child.git("status", "--porcelain")).toBe("")
    expect(child.git("branch", "--show-current")).toBe("")
    expect(user.state()).toEqual(before)
  })

  test("a worktree of a clean checkout begins with the user's own commit", async () => {
    const head = user.write("a", "a").commit()
    const child = await bench.ready()
    expect(child.git("rev-parse", "HEAD").trim()).toBe(head)
  })

  test("a fresh worktree includes a change that has the same time and size as the committed file", async () => {
    user.git("config", "core.trustctime", "false")
    const sameTime = (name: string) => utimesSync(join(user.top, name), 1_000_000, 1_000_000)
    user.write("racy", "before").write("other", "o")
    sameTime("racy")
    user.commit()
    sameTime(".git/index")
    user.write("racy", "behind")
    sameTime("racy")
    expect(user.git("status", "--porcelain")).toBe(" M racy\n")
    sameTime(".git/index")
    expect((await bench.ready()).read("racy")).toBe("behind")
  })

  test("a worktree never runs the user's git hooks", async () => {
    user.write("a", "a").commit()
    for (const hook of ["post-checkout", "pre-commit", "reference-transaction", "post-index-change"])
      user.write(`.git/hooks/${hook}`, `#!/bin/sh\necho ${hook} >> ${bench.folder}/hooked\n`, 0o755)
    const child = await bench.ready()
    child.write("b", "b")
    await bench.places.archive(ID, user.top)
    await bench.places.merge(ID, user.top)
    expect(existsSync(join(bench.folder, "hooked"))).toBe(false)
    expect(user.read("b")).toBe("b")
  })

  test("a worktree for a parent in a subfolder opens that subfolder, tracked by git or not", async () => {
    user.write("packages/one/a", "a").commit()
    const one = await bench.ready({ folder: join(user.top, "packages/one") })
    expect(one.files()).toEqual({ a: expect.any(String) })
    mkdirSync(join(user.top, "packages/empty"))
    const empty = await bench.ready({ folder: join(user.top, "packages/empty"), id: "bg_bbbbbbbb" })
    expect(empty.top.endsWith("packages/empty")).toBe(true)
  })

  test("a fresh worktree gets the ignored files that the copy option names and no others", async () => {
    user.write(".gitignore", "*.env\nconfig/local/\nnode_modules/\n").write("a", "a").commit()
    user.write("my.env", "1").write("deep/er/other.env", "2").write("config/local/x/y", "3")
    user.write("node_modules/big", "4").write("run.env", "#!/bin/sh\n", 0o755)
    bench.places = bench.worktrees({ settings: { setup: "", copy: ["*.env", "/config/local"], dependencies: "auto" } })
    const child = await bench.ready()
    const before = Object.keys(child.files()).sort()
    expect(before).toEqual([".gitignore", "a", "config/local/x/y", "deep/er/other.env", "my.env", "run.env"])
    expect(child.files()["run.env"]).toBe(user.files()["run.env"])
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: [] })
  })

  test("an ignored file is not copied when the task has replaced its folder with a file", async () => {
    user.write(".gitignore", "*.env\n").write("config/a", "a").write("deep/er/a", "a").commit()
    user.write("config/my.env", "1").write("deep/er/my.env", "2").write("my.env", "3")
    bench.places = bench.worktrees({ settings: { setup: "", copy: ["*.env"], dependencies: "auto" } })
    await bench.worked((child) => child.remove("config").write("config", "x").remove("deep").write("deep", "x"))
    const again = await bench.ready({ again: true })
    expect(Object.keys(again.files()).sort()).toEqual([".gitignore", "config", "deep", "my.env"])
  })

  test("a fresh worktree is set up by the setup command, and a failed setup leaves nothing behind", async () => {
    user.write("a", "a").write(".gitignore", "made\n").commit()
    bench.places = bench.worktrees({ settings: { setup: "echo yes > made", copy: [], dependencies: "auto" } })
    expect((await bench.ready()).read("made")).toBe("yes\n")
    bench.places = bench.worktrees({
      settings: { setup: "echo first; echo the reason >&2; exit 3", copy: [], dependencies: "auto" },
    })
    await expect(bench.ready({ id: "bg_bbbbbbbb" })).rejects.toThrow(/exit code 3.*\nfirst\nthe reason$/s)
    const long = "for i in 1 2 3 4 5 6 7 8 9; do printf '%0300d\\n' $i; done; echo the cause; exit 4"
    bench.places = bench.worktrees({ settings: { setup: long, copy: [], dependencies: "auto" } })
    await expect(bench.ready({ id: "bg_dddddddd" })).rejects.toThrow(
      /^.{0,350}The end of its output:\n.{0,991}the cause$/s,
    )
    bench.places = bench.worktrees({ settings: { setup: "sleep 60", copy: [], dependencies: "auto" } })
    await expect(bench.ready({ id: "bg_cccccccc", timeLimit: 200 })).rejects.toThrow(/ran out of time/)
    expect(bench.leftovers().sort()).toEqual([ID, `${ID}.json`])
    expect(user.worktrees()).toBe(2)
  })

  /** Puts a git before the real one that does this before and after each command on worktrees. */
  function wrapGit(before: string, after: string) {
    const git = execFileSync("sh", ["-c", "command -v git"], { encoding: "utf8" }).trim()
    const wrapped = `case " $* " in *" worktree "*) ${before}; ${git} "$@"; code=$?; ${after}; exit $code; esac`
    const bin = new Repository(join(bench.folder, "bin"))
    bin.write("git", `#!/bin/sh\n${wrapped}\nexec ${git} "$@"\n`, 0o755)
    vi.stubEnv("PATH", `${bin.top}:${process.env.PATH}`)
  }

  test("worktrees are added and removed one at a time because git fails on half-made ones", async () => {
    user.write("a", "a").commit()
    const ids = ["bg_bbbbbbbb", "bg_cccccccc", "bg_dddddddd", "bg_eeeeeeee"]
    const log = join(bench.folder, "log")
    wrapGit(`echo begin >> ${log}`, `sleep 0.1; echo end >> ${log}`)
    await Promise.all(
      ids.map(async (id) => {
        // One for each, as for several processes.
        const places = bench.worktrees()
        await places.capture(id, user.top)
        await places.enter({ taskID: id, folder: user.top, timeLimit: 0 })
        await places.archive(id, user.top)
      }),
    )
    const said = readFileSync(log, "utf8").trim().split("\n")
    expect(said.length).toBeGreaterThanOrEqual(4 * ids.length)
    expect(said).toEqual(said.map((_, at) => (at % 2 === 0 ? "begin" : "end")))
    expect(user.worktrees()).toBe(1)
  })

  test("a worktree is made and removed although another git is in the middle of making one", async () => {
    user.write("a", "a").commit()
    const notes = new Repository(join(user.top, ".git/worktrees/half"))
    const complete = `printf '../..\\n' > ${notes.top}/commondir`
    wrapGit(":", complete)
    const begin = () => notes.write("gitdir", join(bench.folder, "half/.git\n")).write("commondir", "")
    begin().write("HEAD", `${user.git("rev-parse", "HEAD")}`)
    await bench.ready()
    expect(notes.read("commondir")).not.toBe("")
    begin()
    await bench.places.archive(ID, user.top)
    expect(user.git("worktree", "list")).not.toContain(ID)
    expect(bench.leftovers()).toEqual([])
  })

  test("a worktree of an old commit is not expired by another process while its task is young", async () => {
    user.write("a", "a").commit()
    const [tree] = user.git("rev-parse", "HEAD^{tree}").split("\n")
    user.write("commit", `tree ${tree}\nauthor me <me@x> 1 +0000\ncommitter me <me@x> 1 +0000\n\nold\n`)
    user.git("reset", "--hard", "--quiet", user.git("hash-object", "-t", "commit", "-w", "commit").trim())
    user.remove("commit")
    const dropped = () => bench.worktrees().expire(user.top, Date.now() - 60_000, true, () => false)
    await bench.places.capture(ID, user.top)
    expect(await dropped()).toEqual([])
    const child = await bench.ready({ again: true })
    expect(child.git("rev-parse", "HEAD")).toBe(user.git("rev-parse", "HEAD"))
    await bench.places.archive(ID, user.top)
    expect(await dropped()).toEqual([])
    await bench.ready({ again: true })
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: [] })
    expect(await dropped()).toEqual([])
  })

  test("a worktree of a worktree begins with that worktree's files and is merged back to it", async () => {
    user.write("a", "a\n").commit()
    const child = await bench.ready()
    child.write("b", "made by the child\n")
    const grandchild = await bench.ready({ folder: child.top, id: "bg_bbbbbbbb" })
    expect(grandchild.read("b")).toBe("made by the child\n")
    grandchild.write("c", "made by the grandchild\n")
    await bench.places.archive("bg_bbbbbbbb", child.top)
    expect(await bench.places.merge("bg_bbbbbbbb", child.top)).toMatchObject({ kind: "merged", files: ["c"] })
    expect(child.read("c")).toBe("made by the grandchild\n")
    expect(user.has("c")).toBe(false)
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: ["b", "c"] })
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["b", "c"] })
  })

  test("a fresh worktree leaves out repositories inside the parent's folder", async () => {
    user.write("a", "a").commit()
    Repository.init(join(user.top, "nested")).write("x", "x").commit()
    Repository.init(join(user.top, "unborn")).write("y", "y")
    const before = user.state()
    const child = await bench.ready()
    expect(Object.keys(child.files())).toEqual(["a"])
    expect(user.state()).toEqual(before)
  })
})

describe("a refused worktree", () => {
  const refused = async (text: RegExp, folder = user.top) => {
    await expect(bench.ready({ folder })).rejects.toThrow(text)
    expect(bench.leftovers()).toEqual([])
  }

  test("a worktree outside of a repository is refused with the reason", () =>
    refused(/not in the checkout of a git repository/, bench.folder))
  test("a worktree in a repository without a commit is refused with the reason", () => refused(/no commit yet/))

  test("a worktree is refused with the reason when git is too old or missing", async () => {
    user.write("a", "a").commit()
    const path = process.env.PATH
    try {
      new Repository(join(bench.folder, "old")).write("git", "#!/bin/sh\necho git version 2.37.9\n", 0o755)
      process.env.PATH = `${join(bench.folder, "old")}:${path}`
      await refused(/needs git 2\.38 or newer; installed is "git version 2\.37\.9"/)
      process.env.PATH = join(bench.folder, "empty")
      await refused(/no git was found/)
    } finally {
      process.env.PATH = path
    }
  })

  /** A branch `other` with which the user's conflicts. */
  const branched = () => {
    user.write("a", "a\n").commit()
    user.git("checkout", "--quiet", "-b", "other")
    user.write("a", "other\n").commit()
    user.git("checkout", "--quiet", "main")
    user.write("a", "main\n").commit()
  }

  test("a worktree is refused with the reason in the middle of a merge or a rebase", async () => {
    branched()
    expect(() => user.git("merge", "other")).toThrow()
    await refused(/in the middle of a merge/)
    user.git("merge", "--abort")
    expect(() => user.git("rebase", "other")).toThrow()
    await refused(/in the middle of a rebase/)
  })

  test("a rebase of the user's keeps no task from its worktree that needs none of the user's files", async () => {
    branched()
    await bench.places.capture(ID, user.top)
    expect(() => user.git("rebase", "other")).toThrow()
    expect((await bench.ready({ again: true })).read("a")).toBe("main\n")
    const again = { taskID: ID, folder: user.top }
    await expect(bench.places.mayEnterAgain({ ...again, bringIn: true })).rejects.toThrow("in the middle of a rebase")
    await bench.places.mayEnterAgain(again)
    await expect(bench.places.bringIn(ID, user.top)).rejects.toThrow(
      "the checkout is in the middle of a rebase. Finish or abort it, then merge again.",
    )
    await bench.places.archive(ID, user.top)
    const entering = bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0, bringIn: true })
    await expect(entering).rejects.toMatchObject({
      message: expect.stringContaining("in the middle of a rebase. Finish or abort it first."),
      behind: `the end of a rebase in ${user.top}`,
    })
    expect(bench.leftovers()).toEqual([])
  })
})

describe("the archiving of a worktree", () => {
  test("archiving a worktree keeps its files and the agent's own commits, and leaves nothing else behind", async () => {
    dirty()
    const before = user.state()
    const child = await bench.ready()
    child.write("plain.txt", "ONE\ntwo\nthree\nfour\nFIVE\n").commit("the child's own")
    child.git("checkout", "--quiet", "-b", "childs-branch")
    child.git("checkout", "--quiet", "--detach")
    child.git("branch", "--delete", "--force", "childs-branch")
    child.write("more.txt", "uncommitted\n").remove("tool.sh")
    const kept = await bench.places.archive(ID, user.top)
    expect(kept).toEqual({
      files: ["more.txt", "plain.txt", "tool.sh"],
      added: 2,
      removed: 2,
      submodules: [],
      unsaved: [],
    })
    expect(bench.leftovers()).toEqual([])
    expect(user.worktrees()).toBe(1)
    expect(user.state()).toEqual(before)
    expect(user.git("show", `refs/superagents/${ID}:more.txt`)).toBe("uncommitted\n")
    expect(user.git("log", "--format=%s", `refs/superagents/${ID}`)).toContain("the child's own")
    const shown = await bench.places.show(ID, user.top, 300)
    expect(shown.diff).toContain("+ONE")
    expect(user.git(...shown.command.split(" ").slice(1))).toContain("+uncommitted")
    expect((await bench.places.show(ID, user.top, 3)).diff.split("\n")).toHaveLength(3)
  })

  test("archiving a worktree twice gives the same result as once", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    child.write("b", "b")
    const first = await bench.places.archive(ID, user.top)
    expect(await bench.places.archive(ID, user.top)).toEqual(first)
  })

  test.each<[string, (child: Repository) => void]>([
    ["reset to nothing", (child) => child.git("checkout", "--quiet", "--orphan", "lonely")],
    ["moved to another history", (child) => child.git("reset", "--quiet", "--soft", "HEAD~1")],
    [
      "left in the middle of a merge",
      (child) => {
        child.git("branch", "mine")
        child.git("checkout", "--quiet", "-b", "one")
        child.write("a", "one").commit()
        child.git("checkout", "--quiet", "mine")
        child.write("a", "two").commit()
        expect(() => child.git("merge", "one")).toThrow()
        child.git("checkout", "--quiet", "--detach", "--force", "mine")
        expect(() => child.git("merge", "one")).toThrow()
      },
    ],
    ["cut off from git", (child) => void child.remove(".git")],
    [
      "forgotten by git",
      (child) => {
        child.remove(".git")
        user.git("worktree", "prune")
      },
    ],
  ])("archiving keeps the work of a worktree that was %s, and its start stays an ancestor", async (_what, spoil) => {
    user.write("a", "a").commit("first")
    user.write("a", "b").commit("second")
    user.write("untracked", "u")
    const child = await bench.ready()
    const base = user.git("rev-parse", `refs/superagents-base/${ID}`).trim()
    child.write("work", "done\n")
    spoil(child)
    expect((await bench.places.archive(ID, user.top)).files).toContain("work")
    user.git("merge-base", "--is-ancestor", base, `refs/superagents/${ID}`)
    expect(bench.leftovers()).toEqual([])
    expect(user.worktrees()).toBe(1)
    await bench.places.merge(ID, user.top)
    expect(user.read("work")).toBe("done\n")
  })

  test("a failed archive loses no work when the task is cleared, and succeeds once the cause is gone", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    child.write(".gitattributes", "bad filter=bad\n").write("bad", "precious")
    user.git("config", "filter.bad.clean", "false")
    user.git("config", "filter.bad.smudge", "cat")
    user.git("config", "filter.bad.required", "true")
    await expect(bench.places.archive(ID, user.top)).rejects.toThrow(
      /^the program of the git filter bad failed at bad\. Mend it/,
    )
    expect(await bench.places.clear(user.top, [ID])).toEqual([ID])
    user.git("config", "filter.bad.clean", "cat")
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: [".gitattributes", "bad"] })
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged" })
    expect(user.read("bad")).toBe("precious")
  })

  test("archiving a worktree whose folder is gone keeps the work that was archived before", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    child.remove(".")
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: [] })
    expect(user.worktrees()).toBe(1)
  })

  test("archiving a worktree whose folder an agent removed keeps its commits, and a note says that it was gone", async () => {
    user.write("a", "a\n").commit()
    const child = await bench.ready()
    child.write("b", "committed\n").commit("the agent's")
    child.write("c", "not committed\n")
    rmSync(child.top, { recursive: true })
    const archived = await bench.places.archive(ID, user.top)
    expect(archived).toMatchObject({ files: ["b"], unsaved: [] })
    expect(archived.notes).toEqual([
      "The folder of its worktree was gone at its end: only what it had committed is kept",
    ])
    expect(user.git("log", "--format=%s", `refs/superagents/${ID}`)).toContain("the agent's")
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["b"] })
  })

  test("archiving a worktree removes folders without write permission", async () => {
    user.write("a", "a").write(".gitignore", "cache/\n").commit()
    const child = await bench.ready()
    child.write("cache/deep/file", "x", 0o444)
    chmodSync(join(child.top, "cache/deep"), 0o555)
    await bench.places.archive(ID, user.top)
    expect(bench.leftovers()).toEqual([])
  })

  test("archiving keeps a folder with an inner repository's unsaved work, and a resume continues in it", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    Repository.init(join(child.top, "nested")).write("x", "precious").commit()
    child.write("b", "b")
    const kept = await bench.places.archive(ID, user.top)
    expect(kept).toMatchObject({ files: ["b"], unsaved: ["nested"], held: child.top })
    expect(await bench.places.archive(ID, user.top)).toEqual(kept)
    await bench.places.sweep(user.top, () => false)
    expect(readFileSync(join(child.top, "nested/x"), "utf8")).toBe("precious")
    expect(await bench.places.clear(user.top, [ID])).toEqual([ID])
    writeFileSync(join(user.top, ".git/worktrees", ID, "index"), "broken")
    const again = await bench.ready({ again: true })
    expect(again.top).toBe(child.top)
    again.remove("nested")
    expect((await bench.places.archive(ID, user.top)).held).toBeUndefined()
    expect(bench.leftovers()).toEqual([])
  })

  test("a kept folder that its user removed by hand is forgotten, and what is archived of it expires as usual", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    Repository.init(join(child.top, "nested")).write("x", "looked at").commit()
    await bench.places.archive(ID, user.top)
    const data = join(user.top, ".git/worktrees", ID)
    const dropped = (before: number) => bench.places.expire(user.top, before, false, () => false)
    rmSync(child.top, { recursive: true })
    await bench.places.sweep(user.top, () => false)
    expect(bench.leftovers()).toEqual([])
    // The folder may have been moved, and its submodules' commits are there.
    expect(existsSync(data)).toBe(true)
    expect(await dropped(Date.now() - 60_000)).toEqual([])
    expect(user.ours().some((name) => name.endsWith(ID))).toBe(true)
    expect(await dropped(Date.now() + 60_000)).toEqual([ID])
    expect(user.ours()).toEqual([])
  })
})

test("a resume in a kept folder has conflict markers and does not report merged files again", async () => {
  user.write("a", "1\n2\n3\n4\n5\n").write("b", "b\n").commit()
  const child = await bench.ready()
  Repository.init(join(child.top, "nested")).write("x", "precious").commit()
  child.write("a", "1\ntheirs\n3\n4\n5\n")
  await bench.places.archive(ID, user.top)
  user.write("a", "1\nmine\n3\n4\n5\n").write("b", "mine\n")
  expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "conflict", files: ["a"] })
  const request = { taskID: ID, folder: user.top, timeLimit: 0 }
  expect(await bench.places.enter(request)).toMatchObject({ directory: child.top, conflicts: ["a"] })
  expect(child.read("a")).toMatch(/<<<<<<<.*\nmine\n=======\ntheirs\n>>>>>>>/)
  expect([child.read("b"), child.read("nested/x")]).toEqual(["mine\n", "precious"])
  await bench.places.archive(ID, user.top)
  expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "conflict", files: ["a"] })
  expect((await bench.places.enter(request)).conflicts).toEqual(["a"])
  child.write("a", "1\nboth\n3\n4\n5\n")
  expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: ["a"], added: 1, removed: 1 })
  expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  expect([user.read("a"), user.read("b")]).toEqual(["1\nboth\n3\n4\n5\n", "mine\n"])
  await bench.places.enter(request)
  child.write("c", "c\n")
  expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: ["c"], held: child.top })
})

describe("submodules", () => {
  let library: Repository
  beforeEach(() => {
    library = bench.repository("library")
    library.write("lib.txt", "v1\n").commit()
    user.write("a", "a\n").commit()
    user.git("submodule", "add", "--quiet", library.top, "vendor/lib")
    user.commit()
  })

  test("submodules are checked out at the parent's commit, pushed or not, without changing the user's git configuration", async () => {
    const mine = new Repository(join(user.top, "vendor/lib"))
    mine.write("lib.txt", "v2, not pushed\n").commit()
    // Of this, too, git would make a setting of the user's, under a lock that ten at once would fail at.
    user.git("config", "--file", ".gitmodules", "submodule.vendor/lib.update", "rebase")
    const before = user.state()
    const child = await bench.ready()
    expect(child.read("vendor/lib/lib.txt")).toBe("v2, not pushed\n")
    expect(user.state()).toEqual(before)
    child.write("b", "b\n")
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: ["b"], unsaved: [] })
    expect(bench.leftovers()).toEqual([])
  })

  test("a repository that .gitmodules still names but git does not track is not a submodule", async () => {
    user.git("rm", "--quiet", "--cached", "vendor/lib")
    user.write(".gitignore", "vendor/\n").commit()
    expect(Object.keys((await bench.ready()).files()).sort()).toEqual([".gitignore", ".gitmodules", "a"])
  })

  test("a submodule stays empty on resume when its commit is unavailable, and its recorded commit is kept", async () => {
    library.write("lib.txt", "v2\n").commit()
    const child = await bench.ready()
    const inner = new Repository(join(child.top, "vendor/lib"))
    inner.git("remote", "set-url", "origin", library.top)
    inner.git("fetch", "--quiet")
    inner.git("checkout", "--quiet", "origin/main")
    const archived = await bench.places.archive(ID, user.top)
    expect(archived).toMatchObject({ submodules: ["vendor/lib"], unsaved: [] })
    const named = () => user.git("ls-tree", `refs/superagents/${ID}`, "vendor/lib")
    const before = named()
    const again = await bench.worked((child) => child.write("b", "b\n"), { again: true })
    expect(again).toMatchObject({ files: ["b"], submodules: ["vendor/lib"], unsaved: [] })
    expect(named()).toBe(before)
  })

  describe("replaced submodules", () => {
    /** What the agent does to them comes home in no part, and is not lost when the task is cleared. */
    async function staysOut(work: (child: Repository) => void, names: readonly string[]) {
      await bench.worked((child) => {
        child.write("a", "theirs\n")
        work(child)
      })
      const before = user.state()
      expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "merged", files: ["a"], submodules: names })
      expect(user.state()).toEqual({ ...before, a: `644 ${Buffer.from("theirs\n").toString("base64")}` })
      expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "nothing", submodules: names })
      expect(await bench.places.clear(user.top, [ID])).toEqual([ID])
      expect(await bench.unmerged()).toEqual([ID])
    }

    test("a submodule that an agent replaced with a folder is reported and not merged", () =>
      staysOut(
        (child) => {
          child.git("rm", "--quiet", "--force", "vendor/lib")
          child.write("vendor/lib/own.txt", "theirs\n").commit()
        },
        [".gitmodules", "vendor/lib"],
      ))

    test("a submodule whose path or parent folder an agent replaced with a file is not merged", async () => {
      user.git("submodule", "add", "--quiet", library.top, "other/deep/lib")
      user.commit()
      await staysOut(
        (child) => {
          child.git("rm", "--quiet", "--force", "vendor/lib", "other/deep/lib")
          rmSync(join(child.top, "other"), { recursive: true, force: true })
          child.write("vendor/lib", "theirs\n").write("other", "theirs\n").commit()
        },
        [".gitmodules", "other/deep/lib", "vendor/lib"],
      )
    })

    test("a folder that an agent replaced with a submodule is reported and not merged", async () => {
      user.write("folder/one", "1").write("folder/two", "2").commit()
      await staysOut(
        (child) => {
          child.git("rm", "--quiet", "-r", "folder")
          child.git("submodule", "add", "--quiet", library.top, "folder")
          child.commit()
        },
        [".gitmodules", "folder"],
      )
      expect(user.read("folder/one")).toBe("1")
    })

    test("the other work of the next run is merged while the replaced submodule stays out", async () => {
      await staysOut(
        (child) => {
          child.git("rm", "--quiet", "--force", "vendor/lib")
          child.write("vendor/lib/own.txt", "theirs\n").commit()
        },
        [".gitmodules", "vendor/lib"],
      )
      await bench.worked(
        (child) => {
          expect(child.read("vendor/lib/own.txt")).toBe("theirs\n")
          child.write("b", "theirs\n").write("vendor/lib/more.txt", "theirs\n")
        },
        { again: true },
      )
      expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["b"] })
      expect(user.read("vendor/lib/lib.txt")).toBe("v1\n")
    })

    test("a submodule that both the user and the agent replaced with a folder is not merged", async () => {
      await bench.worked((child) => {
        child.git("rm", "--quiet", "--force", "vendor/lib")
        child.write("vendor/lib/own.txt", "theirs\n").write("a", "theirs\n").commit()
      })
      user.git("rm", "--quiet", "--force", "vendor/lib")
      user.write("vendor/lib/mine.txt", "mine\n").write("b", "mine\n")
      const before = user.state()
      const { directory } = await bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0, bringIn: true })
      const child = new Repository(directory)
      expect([child.read("vendor/lib/own.txt"), child.read("b")]).toEqual(["theirs\n", "mine\n"])
      await bench.places.archive(ID, user.top)
      expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
      expect(user.state()).toEqual({ ...before, a: `644 ${Buffer.from("theirs\n").toString("base64")}` })
    })
  })

  describe("submodules whose git data an agent broke", () => {
    const ends = async (work: (inner: Repository) => void) => {
      const child = await bench.ready()
      child.write("b", "b\n")
      work(new Repository(join(child.top, "vendor/lib")).write("own", "theirs\n"))
      const archived = await bench.places.archive(ID, user.top)
      expect(archived).toMatchObject({ files: ["b"], unsaved: ["vendor/lib"], held: child.top })
      expect(child.read("vendor/lib/own")).toBe("theirs\n")
    }

    test.each<[what: string, work: (inner: Repository) => void]>([
      ["git data that were removed", (inner) => inner.remove(".git")],
      ["git data that are an empty folder", (inner) => inner.remove(".git").sh("mkdir .git")],
      ["git data that are no repository's", (inner) => inner.remove(".git").write(".git", "nothing\n")],
      ["a branch without commits", (inner) => inner.commit() && inner.git("checkout", "--quiet", "--orphan", "other")],
      ["a repository without commits", (inner) => inner.remove(".git").git("init", "--quiet")],
      ["an unreadable index", (inner) => inner.sh('echo broken >"$(git rev-parse --git-dir)/index"')],
    ])("a submodule with %s is not lost, and holds back no other work", (_what, work) => ends(work))

    test.each(["rm -rf vendor/lib", "rm -rf vendor/lib && mkdir vendor/lib", "rm -rf vendor"])(
      "a submodule of which %s left nothing keeps no folder",
      async (command) => {
        expect(await bench.worked((child) => child.sh(command))).toMatchObject({ unsaved: [] })
        expect(bench.leftovers()).toEqual([])
      },
    )
  })

  describe("a repository that an agent wrote in a submodule's place", () => {
    const ran = () => join(bench.folder, "ran")
    const planted = (folder: string, commit: string) => (child: Repository) =>
      child
        .write(`${folder}/.git/HEAD`, "ref: refs/heads/main\n")
        .write(`${folder}/.git/refs/heads/main`, `${commit}\n`)
        .write(`${folder}/.git/objects/x/x`, "x")
        .write(
          `${folder}/.git/config`,
          `[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\turl = ${library.top}\n\tpromisor = true\n\tuploadpack = "touch ${ran()}; false"\n`,
        )

    test.each<[what: string, prepare: () => (child: Repository) => unknown]>([
      [
        "its own, in a submodule that is not checked out",
        () => {
          user.git("submodule", "--quiet", "deinit", "--force", "vendor/lib")
          return planted("vendor/lib", library.git("rev-parse", "HEAD").trim())
        },
      ],
      [
        "its own, in a submodule of a submodule",
        () => {
          const inner = bench.repository("inner").write("x", "x\n")
          const commit = inner.commit()
          const mine = new Repository(join(user.top, "vendor/lib"))
          mine.git("submodule", "--quiet", "add", inner.top, "inner")
          mine.commit()
          mine.git("submodule", "--quiet", "deinit", "--force", "inner")
          user.commit()
          return planted("vendor/lib/inner", commit)
        },
      ],
      [
        "a tracked folder",
        () => {
          user.sh(`cp -R '${library.top}/.git' fake && rm -rf fake/hooks`)
          const config = `[core]\n\trepositoryformatversion = 0\n\tworktree = ../vendor/lib\n[filter "x"]\n\tclean = touch ${ran()}; cat\n`
          user.write("fake/config", config).commit()
          return (child) =>
            child
              .write("vendor/lib/.git", "gitdir: ../../fake\n")
              .write("vendor/lib/.gitattributes", "* filter=x\n")
              .write("vendor/lib/lib.txt", "v9\n")
        },
      ],
    ])("git does nothing that a repository's configuration says that an agent wrote: %s", async (_what, prepare) => {
      const plant = prepare()
      const child = await bench.ready()
      plant(child)
      child.write("b", "b\n")
      await bench.ready({ id: "bg_bbbbbbbb", folder: child.top })
      expect(existsSync(ran())).toBe(false)
      const archived = await bench.places.archive(ID, user.top)
      expect(archived).toMatchObject({ files: ["b"], unsaved: ["vendor/lib"], held: child.top })
      expect(existsSync(ran())).toBe(false)
      expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["b"] })
      await bench.ready({ again: true })
      expect(existsSync(ran())).toBe(false)
    })
  })

  test("changes in submodules are reported and never merged, and the work in them is not lost", async () => {
    const child = await bench.ready()
    child.write("vendor/lib/lib.txt", "the child's\n").write("b", "b\n")
    new Repository(join(child.top, "vendor/lib")).commit()
    const kept = await bench.places.archive(ID, user.top)
    expect(kept).toMatchObject({ files: ["b"], submodules: ["vendor/lib"], unsaved: ["vendor/lib"], held: child.top })
    const before = user.git("ls-tree", "HEAD", "vendor/lib")
    expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "merged", files: ["b"], submodules: ["vendor/lib"] })
    expect(user.read("vendor/lib/lib.txt")).toBe("v1\n")
    expect(user.git("ls-tree", "HEAD", "vendor/lib")).toBe(before)
    expect(user.git("status", "--porcelain")).toBe("?? b\n")
  })
})
