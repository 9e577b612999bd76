import { execFileSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, utimesSync } from "node:fs"
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
  test("has what the parent sees, uncommitted and untracked work included, and nothing of the user's is touched", async () => {
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

  test("of a clean checkout begins with its very commit", async () => {
    const head = user.write("a", "a").commit()
    const child = await bench.ready()
    expect(child.git("rev-parse", "HEAD").trim()).toBe(head)
  })

  test("sees a change that is as young and as long as what git has looked at", async () => {
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

  test("runs no hook of the user's", async () => {
    user.write("a", "a").commit()
    for (const hook of ["post-checkout", "pre-commit", "reference-transaction", "post-index-change"])
      user.write(`.git/hooks/${hook}`, `#!/bin/sh\necho ${hook} >> ${bench.folder}/hooked\n`, 0o755)
    const child = await bench.ready()
    child.write("b", "b")
    await bench.places.putAway(ID, user.top)
    await bench.places.merge(ID, user.top)
    expect(existsSync(join(bench.folder, "hooked"))).toBe(false)
    expect(user.read("b")).toBe("b")
  })

  test("for a parent in a subfolder is the same subfolder, there or not in git", async () => {
    user.write("packages/one/a", "a").commit()
    const one = await bench.ready({ folder: join(user.top, "packages/one") })
    expect(one.files()).toEqual({ a: expect.any(String) })
    mkdirSync(join(user.top, "packages/empty"))
    const empty = await bench.ready({ folder: join(user.top, "packages/empty"), id: "bg_bbbbbbbb" })
    expect(empty.top.endsWith("packages/empty")).toBe(true)
  })

  test("brings ignored files along that the option names, and no others", async () => {
    user.write(".gitignore", "*.env\nconfig/local/\nnode_modules/\n").write("a", "a").commit()
    user.write("my.env", "1").write("deep/er/other.env", "2").write("config/local/x/y", "3")
    user.write("node_modules/big", "4").write("run.env", "#!/bin/sh\n", 0o755)
    bench.places = bench.worktrees({ settings: { setup: "", copy: ["*.env", "/config/local"], dependencies: "auto" } })
    const child = await bench.ready()
    const before = Object.keys(child.files()).sort()
    expect(before).toEqual([".gitignore", "a", "config/local/x/y", "deep/er/other.env", "my.env", "run.env"])
    expect(child.files()["run.env"]).toBe(user.files()["run.env"])
    expect(await bench.places.putAway(ID, user.top)).toMatchObject({ files: [] })
  })

  test("has none of them where the task has made a file of their folder", async () => {
    user.write(".gitignore", "*.env\n").write("config/a", "a").write("deep/er/a", "a").commit()
    user.write("config/my.env", "1").write("deep/er/my.env", "2").write("my.env", "3")
    bench.places = bench.worktrees({ settings: { setup: "", copy: ["*.env"], dependencies: "auto" } })
    await bench.worked((child) => child.remove("config").write("config", "x").remove("deep").write("deep", "x"))
    const again = await bench.ready({ again: true })
    expect(Object.keys(again.files()).sort()).toEqual([".gitignore", "config", "deep", "my.env"])
  })

  test("is set up by the option's command; one that fails leaves nothing behind", async () => {
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

  test("is added and removed while no other is: git dies of one that is half made", async () => {
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
        await places.putAway(id, user.top)
      }),
    )
    const said = readFileSync(log, "utf8").trim().split("\n")
    expect(said.length).toBeGreaterThanOrEqual(4 * ids.length)
    expect(said).toEqual(said.map((_, at) => (at % 2 === 0 ? "begin" : "end")))
    expect(user.worktrees()).toBe(1)
  })

  test("is made and removed though another git is half through with one of its own", async () => {
    user.write("a", "a").commit()
    const notes = new Repository(join(user.top, ".git/worktrees/half"))
    const complete = `printf '../..\\n' > ${notes.top}/commondir`
    wrapGit(":", complete)
    const begin = () => notes.write("gitdir", join(bench.folder, "half/.git\n")).write("commondir", "")
    begin().write("HEAD", `${user.git("rev-parse", "HEAD")}`)
    await bench.ready()
    expect(notes.read("commondir")).not.toBe("")
    begin()
    await bench.places.putAway(ID, user.top)
    expect(user.git("worktree", "list")).not.toContain(ID)
    expect(bench.leftovers()).toEqual([])
  })

  test("of an old commit is as young as its task, for another process that knows nothing of it", async () => {
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
    await bench.places.putAway(ID, user.top)
    expect(await dropped()).toEqual([])
    await bench.ready({ again: true })
    expect(await bench.places.putAway(ID, user.top)).toMatchObject({ files: [] })
    expect(await dropped()).toEqual([])
  })

  test("of a worktree begins with that worktree's state, and comes home to it", async () => {
    user.write("a", "a\n").commit()
    const child = await bench.ready()
    child.write("b", "made by the child\n")
    const grandchild = await bench.ready({ folder: child.top, id: "bg_bbbbbbbb" })
    expect(grandchild.read("b")).toBe("made by the child\n")
    grandchild.write("c", "made by the grandchild\n")
    await bench.places.putAway("bg_bbbbbbbb", child.top)
    expect(await bench.places.merge("bg_bbbbbbbb", child.top)).toMatchObject({ kind: "merged", files: ["c"] })
    expect(child.read("c")).toBe("made by the grandchild\n")
    expect(user.has("c")).toBe(false)
    expect(await bench.places.putAway(ID, user.top)).toMatchObject({ files: ["b", "c"] })
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["b", "c"] })
  })

  test("leaves repositories within the parent's folder out", async () => {
    user.write("a", "a").commit()
    Repository.init(join(user.top, "nested")).write("x", "x").commit()
    Repository.init(join(user.top, "unborn")).write("y", "y")
    const before = user.state()
    const child = await bench.ready()
    expect(Object.keys(child.files())).toEqual(["a"])
    expect(user.state()).toEqual(before)
  })
})

describe("no worktree is made, and it is said why,", () => {
  const refused = async (text: RegExp, folder = user.top) => {
    await expect(bench.ready({ folder })).rejects.toThrow(text)
    expect(bench.leftovers()).toEqual([])
  }

  test("outside of a repository", () => refused(/not in the checkout of a git repository/, bench.folder))
  test("without a commit", () => refused(/no commit yet/))

  test("with an old git, or none", async () => {
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

  test("in the middle of a merge or a rebase", async () => {
    user.write("a", "a\n").commit()
    user.git("checkout", "--quiet", "-b", "other")
    user.write("a", "other\n").commit()
    user.git("checkout", "--quiet", "main")
    user.write("a", "main\n").commit()
    expect(() => user.git("merge", "other")).toThrow()
    await refused(/in the middle of a merge/)
    user.git("merge", "--abort")
    expect(() => user.git("rebase", "other")).toThrow()
    await refused(/in the middle of a rebase/)
  })
})

describe("putting away", () => {
  test("keeps the state with the child's own commits, and nothing else is left", async () => {
    dirty()
    const before = user.state()
    const child = await bench.ready()
    child.write("plain.txt", "ONE\ntwo\nthree\nfour\nFIVE\n").commit("the child's own")
    child.git("checkout", "--quiet", "-b", "childs-branch")
    child.git("checkout", "--quiet", "--detach")
    child.git("branch", "--delete", "--force", "childs-branch")
    child.write("more.txt", "uncommitted\n").remove("tool.sh")
    const kept = await bench.places.putAway(ID, user.top)
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

  test("twice is as once", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    child.write("b", "b")
    const first = await bench.places.putAway(ID, user.top)
    expect(await bench.places.putAway(ID, user.top)).toEqual(first)
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
  ])("keeps a worktree that was %s; the start stays an ancestor", async (_what, spoil) => {
    user.write("a", "a").commit("first")
    user.write("a", "b").commit("second")
    user.write("untracked", "u")
    const child = await bench.ready()
    const base = user.git("rev-parse", `refs/superagents-base/${ID}`).trim()
    child.write("work", "done\n")
    spoil(child)
    expect((await bench.places.putAway(ID, user.top)).files).toContain("work")
    user.git("merge-base", "--is-ancestor", base, `refs/superagents/${ID}`)
    expect(bench.leftovers()).toEqual([])
    expect(user.worktrees()).toBe(1)
    await bench.places.merge(ID, user.top)
    expect(user.read("work")).toBe("done\n")
  })

  test("that fails loses nothing when the task is cleared, and goes on when it can", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    child.write(".gitattributes", "bad filter=bad\n").write("bad", "precious")
    user.git("config", "filter.bad.clean", "false")
    user.git("config", "filter.bad.smudge", "cat")
    user.git("config", "filter.bad.required", "true")
    await expect(bench.places.putAway(ID, user.top)).rejects.toThrow(
      /^the program of the git filter bad failed at bad\. Mend it/,
    )
    expect(await bench.places.clear(user.top, [ID])).toEqual([ID])
    user.git("config", "filter.bad.clean", "cat")
    expect(await bench.places.putAway(ID, user.top)).toMatchObject({ files: [".gitattributes", "bad"] })
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged" })
    expect(user.read("bad")).toBe("precious")
  })

  test("of a worktree whose folder is gone keeps what was kept", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    child.remove(".")
    expect(await bench.places.putAway(ID, user.top)).toMatchObject({ files: [] })
    expect(user.worktrees()).toBe(1)
  })

  test("removes folders that may not be written to", async () => {
    user.write("a", "a").write(".gitignore", "cache/\n").commit()
    const child = await bench.ready()
    child.write("cache/deep/file", "x", 0o444)
    chmodSync(join(child.top, "cache/deep"), 0o555)
    await bench.places.putAway(ID, user.top)
    expect(bench.leftovers()).toEqual([])
  })

  test("holds the folder where a repository within it has work that a ref cannot keep; a resume goes on in it", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    Repository.init(join(child.top, "nested")).write("x", "precious").commit()
    child.write("b", "b")
    const kept = await bench.places.putAway(ID, user.top)
    expect(kept).toMatchObject({ files: ["b"], unsaved: ["nested"], held: child.top })
    await bench.places.sweep(user.top, () => false)
    expect(readFileSync(join(child.top, "nested/x"), "utf8")).toBe("precious")
    expect(await bench.places.clear(user.top, [ID])).toEqual([ID])
    const again = await bench.ready({ again: true })
    expect(again.top).toBe(child.top)
    again.remove("nested")
    expect((await bench.places.putAway(ID, user.top)).held).toBeUndefined()
    expect(bench.leftovers()).toEqual([])
  })
})

test("in a folder that had to stay, a conflict has its marks, and what was merged is not told again", async () => {
  user.write("a", "1\n2\n3\n4\n5\n").write("b", "b\n").commit()
  const child = await bench.ready()
  Repository.init(join(child.top, "nested")).write("x", "precious").commit()
  child.write("a", "1\ntheirs\n3\n4\n5\n")
  await bench.places.putAway(ID, user.top)
  user.write("a", "1\nmine\n3\n4\n5\n").write("b", "mine\n")
  expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "conflict", files: ["a"] })
  const request = { taskID: ID, folder: user.top, timeLimit: 0 }
  expect(await bench.places.enter(request)).toMatchObject({ directory: child.top, conflicts: ["a"] })
  expect(child.read("a")).toMatch(/<<<<<<<.*\nmine\n=======\ntheirs\n>>>>>>>/)
  expect([child.read("b"), child.read("nested/x")]).toEqual(["mine\n", "precious"])
  await bench.places.putAway(ID, user.top)
  expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "conflict", files: ["a"] })
  expect((await bench.places.enter(request)).conflicts).toEqual(["a"])
  child.write("a", "1\nboth\n3\n4\n5\n")
  expect(await bench.places.putAway(ID, user.top)).toMatchObject({ files: ["a"], added: 1, removed: 1 })
  expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  expect([user.read("a"), user.read("b")]).toEqual(["1\nboth\n3\n4\n5\n", "mine\n"])
  await bench.places.enter(request)
  child.write("c", "c\n")
  expect(await bench.places.putAway(ID, user.top)).toMatchObject({ files: ["c"], held: child.top })
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

  test("are checked out at what the parent has, pushed or not, and the repository's configuration stays", async () => {
    const mine = new Repository(join(user.top, "vendor/lib"))
    mine.write("lib.txt", "v2, not pushed\n").commit()
    // Of this, too, git would make a setting of the user's, under a lock that ten at once would fail at.
    user.git("config", "--file", ".gitmodules", "submodule.vendor/lib.update", "rebase")
    const before = user.state()
    const child = await bench.ready()
    expect(child.read("vendor/lib/lib.txt")).toBe("v2, not pushed\n")
    expect(user.state()).toEqual(before)
    child.write("b", "b\n")
    expect(await bench.places.putAway(ID, user.top)).toMatchObject({ files: ["b"], unsaved: [] })
    expect(bench.leftovers()).toEqual([])
  })

  test("that are no more than a repository in a folder, still named as one, are none", async () => {
    user.git("rm", "--quiet", "--cached", "vendor/lib")
    user.write(".gitignore", "vendor/\n").commit()
    expect(Object.keys((await bench.ready()).files()).sort()).toEqual([".gitignore", ".gitmodules", "a"])
  })

  test("stay empty at a resume where the commit is not to be had from the parent's own, and as they were", async () => {
    library.write("lib.txt", "v2\n").commit()
    const child = await bench.ready()
    const inner = new Repository(join(child.top, "vendor/lib"))
    inner.git("remote", "set-url", "origin", library.top)
    inner.git("fetch", "--quiet")
    inner.git("checkout", "--quiet", "origin/main")
    const put = await bench.places.putAway(ID, user.top)
    expect(put).toMatchObject({ submodules: ["vendor/lib"], unsaved: [] })
    const named = () => user.git("ls-tree", `refs/superagents/${ID}`, "vendor/lib")
    const before = named()
    const again = await bench.worked((child) => child.write("b", "b\n"), { again: true })
    expect(again).toMatchObject({ files: ["b"], submodules: ["vendor/lib"], unsaved: [] })
    expect(named()).toBe(before)
  })

  describe("that became something else, or came of it, stay out with all below them and what names them:", () => {
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

    test("one that became a folder", () =>
      staysOut(
        (child) => {
          child.git("rm", "--quiet", "--force", "vendor/lib")
          child.write("vendor/lib/own.txt", "theirs\n").commit()
        },
        [".gitmodules", "vendor/lib"],
      ))

    test("one that became a file, and one whose folder did", async () => {
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

    test("a folder that became one", async () => {
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

    test("and the rest of what the next run does comes home", async () => {
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

    test("of the user, who has since made a folder of one that the agent made a folder of, too", async () => {
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
      await bench.places.putAway(ID, user.top)
      expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
      expect(user.state()).toEqual({ ...before, a: `644 ${Buffer.from("theirs\n").toString("base64")}` })
    })
  })

  test("are never merged, but named, and work in them is not lost", async () => {
    const child = await bench.ready()
    child.write("vendor/lib/lib.txt", "the child's\n").write("b", "b\n")
    new Repository(join(child.top, "vendor/lib")).commit()
    const kept = await bench.places.putAway(ID, user.top)
    expect(kept).toMatchObject({ files: ["b"], submodules: ["vendor/lib"], unsaved: ["vendor/lib"], held: child.top })
    const before = user.git("ls-tree", "HEAD", "vendor/lib")
    expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "merged", files: ["b"], submodules: ["vendor/lib"] })
    expect(user.read("vendor/lib/lib.txt")).toBe("v1\n")
    expect(user.git("ls-tree", "HEAD", "vendor/lib")).toBe(before)
    expect(user.git("status", "--porcelain")).toBe("?? b\n")
  })
})
