import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { filesOf } from "../../src/lib/repository.ts"
import { Repository, text } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** Repositories, settings and surroundings that make git do other than it is meant to, or work be lost. */

let bench: Bench
let user: Repository
const SECOND = "bg_bbbbbbbb"

beforeEach(() => {
  bench = new Bench()
  user = bench.user
})
afterEach(() => bench.close())

const merge = (id = ID) => bench.places.merge(id, user.top)

/** Does it under these variables. */
async function under(variables: Record<string, string>, work: () => Promise<unknown>) {
  const before = Object.fromEntries(Object.keys(variables).map((name) => [name, process.env[name]]))
  Object.assign(process.env, variables)
  try {
    await work()
  } finally {
    for (const [name, value] of Object.entries(before))
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
  }
}

describe("repositories inside a worktree", () => {
  test("a repository that the child added to its own as a link is not lost with its worktree", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    Repository.init(join(child.top, "nested")).write("x", "precious").commit()
    child.commit("with a repository in it")
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ unsaved: ["nested"], held: child.top })
    expect(child.read("nested/x")).toBe("precious")
    // Merged or not: what is in that folder alone stays there.
    await merge()
    await bench.ready({ again: true })
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ unsaved: ["nested"] })
  })

  test("a folder with thousands of paths that git cannot store stays held, and a resume continues in it", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    const longest = "x".repeat(240)
    for (let nth = 0; nth < 4500; nth++) child.write(`${longest}${10_000 + nth}/.git`, "")
    const archived = await bench.places.archive(ID, user.top)
    const again = await bench.places.archive(ID, user.top)
    expect([archived.held, again.held]).toEqual([child.top, child.top])
    expect(again).toEqual(archived)
    expect([again.unsaved.length, again.unsaved.at(-1)]).toEqual([50, "and 4,451 more"])
    expect(await bench.places.clear(user.top, [ID])).toEqual([ID])
    expect((await bench.ready({ again: true })).top).toBe(child.top)
  })

  test("what is below a name .git, which git neither stores nor lists, keeps its worktree's folder", async () => {
    user.write(".gitignore", "cache/\n").write("a", "a").write("packages/one/b", "b").commit()
    const child = await bench.ready()
    child.write("fixtures/no-repository/.git/config", "precious").write("fixtures/linked/.git", "gitdir: nowhere\n")
    child.write("cache/copy/.git/config", "ignored")
    Repository.init(join(child.top, "packages/one")).write("b", "b, changed").commit()
    const { files, held, unsaved } = await bench.places.archive(ID, user.top)
    expect([files, held]).toEqual([["packages/one/b"], child.top])
    expect([...unsaved].sort()).toEqual(["fixtures/linked/.git", "fixtures/no-repository/.git", "packages/one/.git"])
    expect(child.read("fixtures/no-repository/.git/config")).toBe("precious")
  })

  test("a nested repository survives when its worktree is used again without being put away first", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    Repository.init(join(child.top, "nested")).write("x", "precious").commit()
    const again = await bench.ready({ again: true })
    expect([again.top, again.read("nested/x")]).toEqual([child.top, "precious"])
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ unsaved: ["nested"] })
  })

  test("a folder whose description cannot be read is kept, and no new worktree replaces it", async () => {
    user.write("a", "a").commit()
    const child = await bench.ready()
    child.write("b", "precious")
    writeFileSync(`${child.top}.json`, "")
    await expect(bench.ready({ again: true })).rejects.toThrow(`${child.top} is there already`)
    expect(child.read("b")).toBe("precious")
  })

  test.each<[string, (inner: Repository) => void]>([
    ["committed in it", (inner) => void inner.write("lib.txt", "v2\n").commit()],
    [
      "on a branch of its own",
      (inner) => {
        inner.git("checkout", "--quiet", "-b", "side")
        inner.write("lib.txt", "v2\n").commit()
        inner.git("checkout", "--quiet", "--detach", "HEAD~1")
      },
    ],
    [
      "stashed in it",
      (inner) => {
        inner.write("lib.txt", "v2\n").git("stash")
      },
    ],
    ["new in it", (inner) => void inner.write("more.txt", "x")],
  ])("work in a submodule, %s, is not lost even if the child has committed around it", async (_what, work) => {
    const library = bench.repository("library")
    library.write("lib.txt", "v1\n").commit()
    user.write("a", "a\n").git("submodule", "add", "--quiet", library.top, "vendor/lib")
    user.commit()
    const child = await bench.ready()
    work(new Repository(join(child.top, "vendor/lib")))
    child.commit("with the submodule as it is now")
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ unsaved: ["vendor/lib"], held: child.top })
  })

  test("a new file in a submodule is not lost if the user's git hides untracked files", async () => {
    const library = bench.repository("library")
    library.write("lib.txt", "v1\n").commit()
    user.write("a", "a\n").git("submodule", "add", "--quiet", library.top, "lib")
    user.commit()
    const child = await bench.ready()
    child.write("lib/new", "precious")
    user.write("../config", "[status]\n\tshowUntrackedFiles = no\n")
    await under({ GIT_CONFIG_GLOBAL: join(bench.folder, "config") }, async () => {
      expect(await bench.places.archive(ID, user.top)).toMatchObject({ unsaved: ["lib"], held: child.top })
    })
  })

  test("a change to a file that the child told git not to look at is archived", async () => {
    user.write("a", "a\n").write("b", "b\n").commit()
    const child = await bench.ready()
    child.git("update-index", "--assume-unchanged", "a")
    child.git("update-index", "--skip-worktree", "b")
    child.write("a", "a, changed\n").write("b", "b, changed\n")
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: ["a", "b"] })
  })

  test("the work of a nested worktree can be merged after the outer worktree is gone", async () => {
    user.write("a", "a\n").commit()
    const child = await bench.ready()
    const grandchild = await bench.ready({ id: SECOND, folder: child.top })
    grandchild.write("b", "precious\n")
    await bench.places.archive(ID, user.top)
    await bench.places.sweep(user.top, () => false)
    expect(bench.leftovers()).toEqual([])
    expect(user.worktrees()).toBe(1)
    expect(await merge(SECOND)).toMatchObject({ kind: "merged", files: ["b"] })
  })

  test("work archived today does not expire early in a repository whose last commit is years old", async () => {
    user.write("a", "a")
    user.git("add", "a")
    user.git("-c", "user.name=x", "commit", "--quiet", "--message", "old", "--date", "2001-01-01T00:00:00Z")
    await bench.places.capture(ID, user.top)
    expect(await bench.places.expire(user.top, Date.now() + 60_000, false, (taskID) => taskID === ID)).toEqual([])
    expect(user.ours()).toHaveLength(3)
  })
})

test("a file that disappears while git reads the folder does not stop a launch", async () => {
  user.write(".gitattributes", "first filter=takes-last\n").commit()
  user.git("config", "filter.takes-last.clean", `rm -f '${join(user.top, "last")}'; cat`)
  user.write("first", "1").write("last", "2")
  bench.others.files.push("last")
  expect(Object.keys((await bench.ready()).files())).toEqual([".gitattributes", "first"])
})

test.each([
  ["commit-tree", "error: unable to create temporary file: No such file or directory"],
  ["write-tree", "error: unable to create temporary file: No such file or directory"],
  ["worktree", "fatal: could not open '.git/worktrees/x/locked' for writing: No such file or directory"],
])("git %s is tried again if the user's clean-up removes its files midway", async (command, message) => {
  const bin = new Repository(join(bench.folder, "bin"))
  const [real, once] = [
    spawnSync("sh", ["-c", "command -v git"], { encoding: "utf8" }).stdout.trim(),
    join(bin.top, "once"),
  ]
  const fails = `mkdir '${once}' 2>/dev/null && { echo "${message}" >&2; exit 128; }`
  bin.write("git", `#!/bin/sh\ncase " $* " in *" ${command} "*) ${fails}; esac\nexec ${real} "$@"\n`, 0o755)
  user.write("a", "a").commit()
  user.write("b", "b")
  await under({ PATH: `${bin.top}:${process.env.PATH}` }, async () => {
    expect(Object.keys((await bench.ready()).files())).toEqual(["a", "b"])
    expect(bin.has("once")).toBe(true)
  })
})

test("files that git cannot take hold back no other work, and keep their worktree's folder", async () => {
  const attributes =
    "*.bom working-tree-encoding=UTF-16\n*.le working-tree-encoding=UTF-16LE\n*.rc working-tree-encoding=UTF-16 eol=lf\n"
  const rc = Buffer.from("\ufefftracked\n", "utf16le")
  user.write(".gitattributes", attributes).write("a", "a\n").write("tracked.rc", rc).commit()
  const child = await bench.ready()
  const long = "folder with a long name/".repeat(12)
  child.write("a", "work\n").write("it's/git~1", "x").write("line\nbreak/git~1", "x").write(`${long}git~1`, "x")
  child
    .write("new's.bom", "no mark\n")
    .write("x.le", Buffer.from("\ufeffx", "utf16le"))
    .write("tracked.rc", "UTF-8 now\n")
  const { files, unsaved, held } = await bench.places.archive(ID, user.top)
  expect([files, held]).toEqual([["a"], child.top])
  expect([...unsaved].sort()).toEqual([
    `${long}git~1`,
    "it's/git~1",
    "line\nbreak/git~1",
    "new's.bom",
    "tracked.rc",
    "x.le",
  ])
  expect(child.read("tracked.rc")).toBe("UTF-8 now\n")
})

describe("an agent that breaks what it shares with the user's git", () => {
  /** What a child does to git itself, beside its work, which is merged all the same. */
  const merges = async (breaks: (child: Repository) => void) => {
    user.write("a", "a\n").write("b", "b\n").commit()
    const child = await bench.ready()
    child.write("a", "committed\n").commit()
    child.write("b", "staged\n").write("staged", "x").git("add", ".")
    child.write("new", "n\n").remove("staged")
    breaks(child)
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: ["a", "b", "new"], unsaved: [] })
    expect(bench.leftovers()).toEqual([])
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a", "b", "new"] })
    expect([user.read("a"), user.read("b"), user.read("new")]).toEqual(["committed\n", "staged\n", "n\n"])
  }
  const own = (child: Repository) => child.git("rev-parse", "--path-format=absolute", "--git-dir").trim()

  test.each(["echo broken >index", ": >index", "rm index; mkdir index", "head -c 40 index >i; mv i index"])(
    "an index of its worktree after %s holds back no work",
    (command) => merges((child) => child.sh(`cd '${own(child)}' && ${command}`)),
  )

  test("a repository that it declares bare is still merged into", () =>
    merges((child) => child.git("config", "core.bare", "true")))

  test("another top of the user's checkout that it sets is named, and nothing is merged there", async () => {
    const elsewhere = bench.repository("elsewhere").write("a", "a\n")
    user.write("a", "a\n").commit()
    const child = await bench.ready()
    child.write("a", "theirs\n").git("config", "core.worktree", elsewhere.top)
    const before = elsewhere.files()
    for (const attempt of [() => bench.places.archive(ID, user.top), () => bench.places.merge(ID, user.top)])
      await expect(attempt()).rejects.toThrow(`git takes ${elsewhere.top} for the top of ${user.top}`)
    expect(elsewhere.files()).toEqual(before)
    user.sh("git config --unset core.worktree")
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: ["a"] })
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  })
})

test("many files that git cannot take hold back no other work either", async () => {
  user.write(".gitattributes", "*.bom working-tree-encoding=UTF-16\n").commit()
  const child = await bench.ready()
  child.write("a", "work\n")
  for (let nth = 0; nth < 60; nth++) child.write(`${nth}.bom`, "no mark\n")
  const { files, unsaved } = await bench.places.archive(ID, user.top)
  // 49 names, and the number of the others.
  expect([files, unsaved.length, unsaved.at(-1)]).toEqual([["a"], 50, "and 11 more"])
})

test("names that differ only in case are two names if the disk says so, whatever git's setting", async () => {
  user.git("config", "core.ignorecase", "true")
  user.write("readme.md", "x\n").write("Dir/a", "a\n").commit()
  await bench.worked((child) => child.sh("mv readme.md README.md; mv Dir dir; echo more >> README.md"))
  expect(await merge()).toMatchObject({ kind: "merged" })
  expect(Object.keys(user.files()).sort()).toEqual(["README.md", "dir/a"])
  expect(user.read("README.md")).toBe("x\nmore\n")
})

test("a merge waits while the user's git packs the refs", async () => {
  user.write("a", "a").commit()
  await bench.worked((child) => child.write("b", "b"))
  user.git("pack-refs", "--all")
  user.write(".git/packed-refs.lock", "")
  const packed = sleep(1500).then(() => user.remove(".git/packed-refs.lock"))
  expect(await merge()).toMatchObject({ kind: "merged", files: ["b"] })
  await packed
  expect(await bench.unmerged()).toEqual([])
})

describe("git's environment variables", () => {
  test("environment variables that redirect git prevent a worktree, since the agent's git would obey them", async () => {
    user.write("a", "a").commit()
    for (const name of ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"])
      await under({ [name]: join(bench.folder, "elsewhere") }, async () => {
        await expect(bench.ready()).rejects.toThrow(new RegExp(`${name}.*is set`))
      })
    expect(bench.leftovers()).toEqual([])
  })

  test("environment variables that name the user's git configuration are respected", async () => {
    user.write("a", "a").commit()
    user.write("secret", "s").write("../config", `[core]\n\texcludesFile = ${join(bench.folder, "ignored")}\n`)
    user.write("../ignored", "secret\n")
    await under({ GIT_CONFIG_GLOBAL: join(bench.folder, "config") }, async () => {
      expect((await bench.ready()).has("secret")).toBe(false)
    })
    const variables = { GIT_CONFIG_COUNT: "1", GIT_CONFIG_KEY_0: "core.excludesFile" }
    await under({ ...variables, GIT_CONFIG_VALUE_0: join(bench.folder, "ignored") }, async () => {
      expect((await bench.ready({ id: SECOND })).has("secret")).toBe(false)
    })
  })

  test("environment variables for Git LFS and for connections to remotes are respected", async () => {
    const variables = { GIT_LFS_SKIP_SMUDGE: "1", GIT_SSH_COMMAND: "my-ssh", GIT_SSL_CAINFO: "my-ca" }
    user.write(".gitattributes", "*.big filter=large\n").write("a.big", "x\n").commit()
    user.git(
      "config",
      "filter.large.smudge",
      `echo ${Object.keys(variables)
        .map((name) => `$${name}`)
        .join(" ")}`,
    )
    await under(variables, async () => {
      expect((await bench.ready()).read("a.big")).toBe("1 my-ssh my-ca\n")
    })
  })
})

describe("the user's git settings", () => {
  test("the user's settings for encodings, signing, colours and split indexes do not change the work", async () => {
    user.write("a", text()).commit()
    for (const [name, value] of [
      ["i18n.commitEncoding", "ISO-8859-1"],
      ["i18n.logOutputEncoding", "ISO-8859-1"],
      ["commit.gpgSign", "true"],
      ["gpg.program", "/bin/false"],
      ["log.showSignature", "true"],
      ["color.ui", "always"],
      ["core.splitIndex", "true"],
      ["diff.noprefix", "true"],
      ["diff.external", "/bin/false"],
      ["core.fsmonitor", "/bin/false"],
      ["submodule.recurse", "true"],
    ] as const)
      user.git("config", name, value)
    user.git("update-index", "--split-index")
    const shared = () => readdirSync(join(user.top, ".git")).filter((name) => name.startsWith("sharedindex"))
    const before = shared()
    const umlaut = new Repository(join(user.top, "ünï"))
    umlaut.write("b", "b")
    const child = await bench.ready({ folder: umlaut.top })
    child
      .write("../a", text({ 1: "theirs" }))
      .write("b", "theirs")
      .write("a b", "theirs")
    await bench.places.archive(ID, umlaut.top)
    expect(shared()).toEqual(before)
    const files = ["a", "ünï/a b", "ünï/b"]
    const { diff } = await bench.places.show(ID, umlaut.top, 300)
    expect(diff).toContain("\n+theirs")
    expect(filesOf(diff).map(({ file }) => file)).toEqual(files)
    expect(await bench.places.merge(ID, umlaut.top)).toMatchObject({ kind: "merged", files })
  })

  test("a user's setting that restricts bare repositories leaves no worktree behind", async () => {
    user.write("a", "a").commit()
    user.write("../config", "[safe]\n\tbareRepository = explicit\n")
    await under({ GIT_CONFIG_GLOBAL: join(bench.folder, "config") }, async () => {
      await bench.worked((child) => child.write("b", "b"))
    })
    expect(user.worktrees()).toBe(1)
  })

  test("a sparse checkout stays sparse in folder and worktree, and nothing outside of it is deleted", async () => {
    user.write("in/a", text()).write("out/b", "b").commit()
    user.git("sparse-checkout", "set", "in")
    expect(user.has("out/b")).toBe(false)
    await bench.worked((child) => child.write("in/a", text({ 1: "theirs" })))
    const before = user.repositoryState()
    expect(await merge()).toMatchObject({ kind: "merged", files: ["in/a"] })
    expect(user.repositoryState()).toEqual(before)
    expect(user.git("status", "--porcelain")).toBe(" M in/a\n")
  })

  test.each<[string, (() => void) | undefined, RegExp, () => void]>([
    [
      "a sparse checkout leaves out",
      undefined,
      /^out\/b lies outside of your sparse checkout, .*git sparse-checkout add, then merge again\.$/,
      () => void user.git("sparse-checkout", "add", "out"),
    ],
    [
      "git is told not to look at",
      () => {
        user.git("update-index", "--skip-worktree", "out/b")
        user.write("out/b", "mine, unseen\n")
      },
      /^Git is told not to look at out\/b, /,
      () => {
        user.git("update-index", "--no-skip-worktree", "out/b")
        user.git("checkout", "--quiet", "out/b")
      },
    ],
  ])(
    "a change to a file that %s is not merged, and the advice given solves that",
    async (_what, hide, advice, mend) => {
      user.write("in/a", text()).write("out/b", "b\n").commit()
      if (hide) hide()
      else user.git("sparse-checkout", "set", "in")
      await bench.worked((child) => child.write("in/a", text({ 1: "theirs" })).write("out/b", "theirs\n"))
      const before = user.state()
      expect(await merge()).toEqual({ kind: "conflict", files: ["out/b"], advice: expect.stringMatching(advice) })
      expect(user.state()).toEqual(before)
      await bench.worked(() => {}, { again: true })
      expect(await merge()).toMatchObject({ kind: "conflict", advice: expect.stringMatching(advice) })
      mend()
      expect(await merge()).toMatchObject({ kind: "merged", files: ["in/a", "out/b"] })
      expect(user.read("out/b")).toBe("theirs\n")
    },
  )

  test("attributes added after a file was committed, which would store it differently, cause no conflict", async () => {
    const dos = text().replaceAll("\n", "\r\n")
    user.write("a.txt", dos)
    utimesSync(join(user.top, "a.txt"), 1_000_000, 1_000_000)
    user.commit()
    user.write(".gitattributes", "*.txt text\n").git("add", ".gitattributes")
    user.git("commit", "--quiet", "--message", "not renormalized")
    expect(user.git("status", "--porcelain")).toBe("")
    await bench.worked((child) => child.write("a.txt", dos.replace("line 7\r", "theirs\r")))
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a.txt"] })
    expect(user.read("a.txt")).toBe(text({ 7: "theirs" }))
  })

  test("the user's diff programs and a failing merge driver do not touch the user's files", async () => {
    user.git("config", "diff.own.textconv", `touch ${bench.folder}/ran; cat`)
    user.git("config", "diff.own.command", `touch ${bench.folder}/ran; true`)
    // Before the file is committed: else it depends on whether it is a second older than the index how it is stored.
    user.git("config", "filter.own.clean", "tr a-z A-Z")
    user.git("config", "filter.own.smudge", "tr A-Z a-z")
    user.write(".gitattributes", "*.txt diff=own merge=own filter=own\n").write("a.txt", text()).commit()
    await bench.worked((child) => child.write("a.txt", child.read("a.txt").replace("line 7\n", "theirs\n")))
    await bench.places.show(ID, user.top, 300)
    expect(existsSync(join(bench.folder, "ran"))).toBe(false)
    user.write("a.txt", user.read("a.txt").replace("line 30\n", "mine\n"))
    expect(await merge()).toMatchObject({ kind: "merged" })
    expect(user.read("a.txt")).toBe(text({ 7: "theirs", 30: "mine" }))
  })
})

test("a file is written according to the .gitattributes that are merged with it", async () => {
  user.write(".gitattributes", "*.old filter=large\n").write("in/a", "a").write("b.large", "before\n").commit()
  user.git("config", "filter.large.clean", "tr a-z A-Z")
  user.git("config", "filter.large.smudge", "tr A-Z a-z")
  await bench.worked((child) => {
    child.write(".gitattributes", "*.old filter=large\n*.large filter=large\n").write("b.large", "after\n")
    child.write("sub/.gitattributes", "*.txt working-tree-encoding=UTF-16LE\n")
    child.write("sub/c.txt", Buffer.from("wide\n", "utf16le")).remove("in")
  })
  const files = [".gitattributes", "b.large", "in/a", "sub/.gitattributes", "sub/c.txt"]
  expect(await merge()).toMatchObject({ kind: "merged", files })
  expect([user.read("b.large"), user.read("sub/c.txt")]).toEqual(["after\n", "w\0i\0d\0e\0\n\0"])
  expect(user.has("in")).toBe(false)
})

describe("an unusual parent", () => {
  test.each<[string, () => Repository]>([
    [
      "within a submodule",
      () => {
        const library = bench.repository("library")
        library.write("a", text()).commit()
        user.write("x", "x").git("submodule", "add", "--quiet", library.top, "lib")
        user.commit()
        return new Repository(join(user.top, "lib"))
      },
    ],
    [
      "in a worktree of the user's, of a bare repository",
      () => {
        user.write("a", text()).commit()
        user.git("clone", "--quiet", "--bare", user.top, join(bench.folder, "bare.git"))
        new Repository(join(bench.folder, "bare.git")).git("worktree", "add", "--quiet", "../checkout")
        return new Repository(join(bench.folder, "checkout"))
      },
    ],
    [
      "under a path that is a link",
      () => {
        user.write("a", text()).commit()
        user.link("../link", user.top)
        return user
      },
    ],
    [
      "on no branch",
      () => {
        user.write("a", text()).commit()
        user.git("checkout", "--quiet", "--detach")
        return user
      },
    ],
  ])("a parent %s can launch a child in a worktree, and its work is merged back", async (what, make) => {
    const parent = make()
    const folder = what.includes("link") ? join(bench.folder, "link") : parent.top
    const before = parent.repositoryState()
    await bench.worked((child) => child.write("a", text({ 1: "theirs" })).write("-dash\nline", "x"), { folder })
    expect(await bench.places.merge(ID, folder)).toMatchObject({ kind: "merged", files: ["-dash\nline", "a"] })
    expect(parent.read("a")).toBe(text({ 1: "theirs" }))
    expect(parent.repositoryState()).toEqual(before)
    expect(bench.leftovers()).toEqual([])
  })

  test("a launch from a folder that is gone gives an error that says so", async () => {
    await expect(bench.ready({ folder: join(bench.folder, "gone") })).rejects.toThrow(/folder .*gone.* does not exist/)
  })
})

test("a merge between two disks puts no temporary files next to the user's files", async (context) => {
  const small = join(bench.folder, "small")
  mkdirSync(small)
  if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=6m", "none", small]).status !== 0)
    context.skip("a file system cannot be mounted here")
  try {
    const project = join(bench.folder, "split")
    user.git("init", "--quiet", "--initial-branch=main", "--separate-git-dir", join(small, "git"), project)
    const split = new Repository(project)
    split.write("a", text()).write("b", text()).commit()
    await bench.worked((child) => child.write("a", text({ 1: "theirs" })).remove("b"), { folder: project })
    split.write("a.superagents", "mine")
    expect(await bench.places.merge(ID, project)).toMatchObject({ kind: "merged", files: ["a", "b"] })
    expect([split.read("a"), split.read("a.superagents")]).toEqual([text({ 1: "theirs" }), "mine"])
    expect(Object.keys(split.files()).sort()).toEqual(["a", "a.superagents"])
  } finally {
    spawnSync("umount", [small])
  }
})
