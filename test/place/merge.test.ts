import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  utimesSync,
} from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { Repository, text } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

let bench: Bench
let user: Repository

beforeEach(() => {
  bench = new Bench()
  user = bench.user
})
afterEach(() => bench.close())

const merge = (id = ID) => bench.places.merge(id, user.top)

describe("a merge", () => {
  test("a merge leaves a parent with uncommitted changes as it was, except for the merged lines", async () => {
    user.write(".gitignore", "ignored\n").write("shared.txt", text()).write("staged.txt", text()).write("other", "o")
    user.commit()
    user.write("stashed", "s").git("stash", "--include-untracked")
    user.write("shared.txt", text({ 0: "mine, uncommitted" }))
    user.write("staged.txt", text({ 5: "mine, staged" })).git("add", "staged.txt")
    user.write("staged.txt", text({ 5: "mine, staged", 20: "mine, not staged" }))
    user.write("untracked.txt", text()).write("ignored", "i").write("private", "p", 0o600)
    const child = await bench.ready()
    child.write("shared.txt", text({ 0: "mine, uncommitted", 39: "theirs" }))
    child.write("staged.txt", text({ 5: "mine, staged", 20: "mine, not staged", 35: "theirs" }))
    child.write("untracked.txt", text({ 10: "theirs" })).write("new/file.txt", "theirs\n")
    await bench.places.archive(ID, user.top)
    user.write("shared.txt", text({ 0: "mine, uncommitted", 20: "mine, meanwhile" }))
    const before = user.state()
    expect(await merge()).toEqual({
      kind: "merged",
      files: ["new/file.txt", "shared.txt", "staged.txt", "untracked.txt"],
      submodules: [],
    })
    const base64 = (content: string) => `644 ${Buffer.from(content).toString("base64")}`
    expect(user.state()).toEqual({
      ...before,
      "new/file.txt": base64("theirs\n"),
      "shared.txt": base64(text({ 0: "mine, uncommitted", 20: "mine, meanwhile", 39: "theirs" })),
      "staged.txt": base64(text({ 5: "mine, staged", 20: "mine, not staged", 35: "theirs" })),
      "untracked.txt": base64(text({ 10: "theirs" })),
    })
    expect(user.git("diff", "--cached", "--name-only")).toBe("staged.txt\n")
    expect(bench.leftovers()).toEqual([])
    expect(existsSync(join(user.top, ".git/superagents", ID))).toBe(false)
  })

  test("a second merge does nothing, and a merge after a resume adds only the new work", async () => {
    user.write("a", text()).commit()
    await bench.worked((child) => child.write("a", text({ 1: "first run" })))
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
    expect(await bench.unmerged()).toEqual([])
    user.write("a", text({ 1: "first run, and the user" }))
    const before = user.state()
    expect(await merge()).toEqual({ kind: "nothing" })
    expect(user.state()).toEqual(before)
    const told = { files: ["a"], added: 1, removed: 1 }
    expect(await bench.places.archive(ID, user.top)).toMatchObject(told)
    expect(await bench.places.show(ID, user.top, 300)).toMatchObject({
      ...told,
      diff: expect.stringMatching(/^\+first run$/m),
    })
    const second = await bench.worked(
      (child) => {
        expect(child.read("a")).toBe(text({ 1: "first run" }))
        child.write("a", text({ 1: "first run", 30: "second run" }))
      },
      { again: true },
    )
    expect(second).toMatchObject(told)
    expect(await bench.unmerged()).toEqual([ID])
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
    expect(user.read("a")).toBe(text({ 1: "first run, and the user", 30: "second run" }))
  })

  test("a merge reports work that is missing or empty instead of merging it", async () => {
    user.write("a", "a").commit()
    await expect(merge()).rejects.toThrow(/nothing to merge/)
    await bench.worked(() => {})
    expect(await merge()).toEqual({ kind: "nothing" })
  })

  test.each(["user", "agent"])(
    "a merge of a file that both sides moved keeps what the %s wrote at the old path",
    async (who) => {
      user.write("d/y", text()).commit()
      const child = await bench.ready()
      for (const each of [child, user]) {
        each.write("moved/y", text()).remove("d/y")
        if ((each === user) === (who === "user")) each.write("d/y", text({ 3: "new here" }))
      }
      await bench.places.archive(ID, user.top)
      const before = user.state()
      const result = await merge()
      if (who === "user") {
        expect(result).toEqual({ kind: "conflict", files: ["d/y"] })
        return expect(user.state()).toEqual(before)
      }
      // The agent's is taken along to where the user has it now.
      expect(result).toMatchObject({ kind: "merged", files: ["moved/y"] })
      expect(user.read("moved/y")).toContain("new here")
    },
  )

  test("a merge applies one side's edits to a file that the other side has moved", async () => {
    user
      .write("d/y", text())
      .write("e/z", text({ 1: "z" }))
      .commit()
    const child = await bench.ready()
    child
      .write("moved/y", text())
      .remove("d/y")
      .write("e/z", text({ 1: "z", 20: "the agent's" }))
    await bench.places.archive(ID, user.top)
    user
      .write("d/y", text({ 3: "the user's" }))
      .write("new/z", text({ 1: "z" }))
      .remove("e/z")
    expect(await merge()).toMatchObject({ kind: "merged" })
    expect([user.read("moved/y"), user.read("new/z")]).toEqual([
      text({ 3: "the user's" }),
      text({ 1: "z", 20: "the agent's" }),
    ])
  })

  test("a merge replaces a link that points to itself with the agent's folder", async () => {
    user.link("loop", "loop").write("a", "a").commit()
    await bench.worked((child) => child.remove("loop").write("loop/inside", "the agent's\n"))
    expect(await merge()).toEqual({ kind: "merged", files: ["loop", "loop/inside"], submodules: [] })
    expect(user.read("loop/inside")).toBe("the agent's\n")
  })

  test("a merge that is blocked by a link to itself reports the file and changes nothing", async () => {
    user.write(".gitignore", "loop\n").write("a", "a").commit()
    await bench.worked((child) => child.write("loop/inside", "the agent's\n").git("add", "--force", "loop/inside"))
    user.link("loop", "loop")
    const before = user.state()
    expect(await merge()).toMatchObject({ kind: "conflict", files: ["loop/inside"] })
    expect(user.state()).toEqual(before)
  })

  test("a merge brings binary files, deletions, renames, mode bits, links and unusual file names", async () => {
    const numbers = Array.from({ length: 5000 }, (_, index) => (index * 7919) % 256)
    const [binary, turned] = [Buffer.from(numbers), Buffer.from(numbers.toReversed())]
    user
      .write("binary", binary)
      .write("gone/deep/er", "x")
      .write("old name", text())
      .write("tool", "#!/bin/sh\n")
      .write("kept private", "a\n", 0o600)
      .write("folder/to/file", "x")
      .write("file to folder", "x")
      .link("link", "binary")
    user.commit()
    const before = user.repositoryState()
    await bench.worked((child) => {
      child.write("binary", turned).remove("gone").write("tool", "#!/bin/sh\n", 0o755)
      child.git("mv", "old name", "new name")
      child.write("new name", text({ 3: "renamed" })).write("kept private", "b\n")
      child.remove("folder").write("folder", "now a file\n")
      child.remove("file to folder").write("file to folder/inside", "now a folder\n")
      child.remove("link").link("link", "tool").link("new link", "nowhere")
      child
        .write("with space\tand\ttab", "1")
        .write("with\nnew line", "2")
        .write('with "quotes"', "3")
        .write("ünï", "4")
    })
    const changed = (await merge()) as { files: readonly string[] }
    expect(changed.files).toHaveLength(16)
    const files = user.files()
    const shown = new Repository((await bench.ready({ id: "bg_bbbbbbbb" })).top).files()
    expect(files).toEqual({ ...shown, "kept private": shown["kept private"]?.replace("644", "600") })
    expect(readFileSync(join(user.top, "binary")).equals(turned)).toBe(true)
    expect(files).toMatchObject({ link: "-> tool", "new link": "-> nowhere", "with\nnew line": expect.any(String) })
    expect(files.tool).toMatch(/^755/)
    expect(existsSync(join(user.top, "gone"))).toBe(false)
    expect(user.repositoryState()).toEqual(before)
  })

  test("a merge changes only the executable bit of a file, not who may read it", async () => {
    user.write("private", "#!/bin/sh\n", 0o600).write("group", "#!/bin/sh\n", 0o640).write("open", "#!/bin/sh\n")
    user.write("tool", "#!/bin/sh\n", 0o700).commit()
    await bench.worked((child) => {
      child.write("private", "#!/bin/sh\ntheirs\n", 0o755).write("group", "#!/bin/sh\n", 0o755)
      child.write("open", "#!/bin/sh\n", 0o755).write("tool", "#!/bin/sh\n", 0o644)
    })
    expect(await merge()).toMatchObject({ kind: "merged" })
    const mode = (name: string) => (user.files()[name] ?? "").split(" ")[0]
    expect(["private", "group", "open", "tool"].map(mode)).toEqual(["700", "750", "755", "600"])
    expect(user.read("private")).toBe("#!/bin/sh\ntheirs\n")
  })

  test.each(["true", "input", "false"])("a merge keeps line endings with core.autocrlf=%s", async (autocrlf) => {
    const crlf = (content: string) => content.replaceAll("\n", "\r\n")
    user.git("config", "core.autocrlf", autocrlf)
    user.write("dos.txt", autocrlf === "input" ? text() : crlf(text())).write("bytes", Buffer.from([0, 13, 10, 1]))
    user.commit()
    await bench.worked((child) => {
      child.write("dos.txt", child.read("dos.txt").replace("line 7", "theirs"))
      child.write("bytes", Buffer.from([0, 13, 10, 2]))
    })
    const mine = user.read("dos.txt").replace("line 30", "mine")
    user.write("dos.txt", mine)
    expect(await merge()).toMatchObject({ kind: "merged" })
    expect(user.read("dos.txt")).toBe(mine.replace("line 7", "theirs"))
    expect([...readFileSync(join(user.top, "bytes"))]).toEqual([0, 13, 10, 2])
  })

  test("a merge keeps the line endings that .gitattributes asks for", async () => {
    user.write(".gitattributes", "*.bat eol=crlf\n").write("run.bat", "one\r\ntwo\r\nthree\r\n").commit()
    await bench.worked((child) => child.write("run.bat", "one\r\ntwo\r\nTHREE\r\n").write("new.bat", "x\r\n"))
    await merge()
    expect([user.read("run.bat"), user.read("new.bat")]).toEqual(["one\r\ntwo\r\nTHREE\r\n", "x\r\n"])
  })

  test("a merge works on a parent that has since committed, switched branches and pulled", async () => {
    user.write("a", text()).commit()
    user.write("a", text({ 0: "uncommitted at the launch" }))
    await bench.worked((child) => child.write("a", text({ 0: "uncommitted at the launch", 39: "theirs" })))
    user.commit("what was uncommitted")
    user.git("checkout", "--quiet", "-b", "feature")
    user.write("a", text({ 0: "uncommitted at the launch", 20: "on the branch" })).commit()
    expect(await merge()).toMatchObject({ kind: "merged" })
    expect(user.read("a")).toBe(text({ 0: "uncommitted at the launch", 20: "on the branch", 39: "theirs" }))
    expect(user.git("branch", "--show-current")).toBe("feature\n")
  })

  test("a merge brings tracked lock files of OpenCode's folder but none that only OpenCode created", async () => {
    const [tracked, own] = [".opencode/bun.lock", ".opencode/package-lock.json"]
    user.write(tracked, text()).write("a", "a\n").commit()
    const archived = await bench.worked((child) => {
      child
        .write(tracked, text({ 3: "theirs" }))
        .write(own, "OpenCode's\n")
        .write(".opencode/node_modules/x", "x")
    })
    expect(archived).toMatchObject({ files: [tracked], added: 1, removed: 1 })
    const { diff } = await bench.places.show(ID, user.top, 300)
    expect(diff).toContain("+theirs")
    expect(diff).not.toContain("host's")
    user.write(tracked, text({ 30: "mine" }))
    expect(await merge()).toMatchObject({ kind: "merged", files: [tracked] })
    expect(user.read(tracked)).toBe(text({ 3: "theirs", 30: "mine" }))
    expect(user.has(own)).toBe(false)
  })

  test("a merge keeps the parent's working folder even when it becomes empty", async () => {
    user.write("sub/only", "x").write("a", "a").commit()
    ;(await bench.ready({ folder: join(user.top, "sub") })).remove("only")
    await bench.places.archive(ID, join(user.top, "sub"))
    expect(await bench.places.merge(ID, join(user.top, "sub"))).toMatchObject({ kind: "merged", files: ["sub/only"] })
    expect(existsSync(join(user.top, "sub"))).toBe(true)
  })

  test("a merge that another process finishes keeps the parent's working folder, too", async () => {
    const sub = join(user.top, "sub")
    user.write("sub/only", "x").write("a", "a").commit()
    ;(await bench.ready({ folder: sub })).remove("only")
    await bench.places.archive(ID, sub)
    const fault = (moment: string) => {
      if (moment === "merge: begun") throw new Error("cut off")
    }
    await expect(bench.worktrees({ fault }).merge(ID, sub)).rejects.toThrow("cut off")
    expect(await bench.worktrees().sweep(sub, () => false)).toHaveLength(1)
    expect([existsSync(sub), user.has("sub/only")]).toEqual([true, false])
  })
})

test("an interrupted merge that cannot be finished is named, and hides no other one", async () => {
  user.write("a", "a").write("b", "b").commit()
  const second = "bg_bbbbbbbb"
  for (const id of [ID, second]) await bench.worked((child) => child.write(id, "theirs"), { id })
  const fault = (moment: string) => {
    if (moment === "merge: begun") throw new Error("cut off")
  }
  await expect(bench.worktrees({ fault }).merge(second, user.top)).rejects.toThrow("cut off")
  const message = user.git("log", "-1", "--format=%B", `refs/superagents-merge/${second}`).trim()
  user.git(
    "update-ref",
    `refs/superagents-merge/${ID}`,
    user.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", message).trim(),
  )
  expect(await bench.worktrees().sweep(user.top, () => false)).toEqual([
    { taskID: ID, what: expect.stringContaining("its merge was cut off, and could not be finished: git rev-parse") },
    { taskID: second, what: expect.any(String), merge: { kind: "merged", files: [second], submodules: [] } },
  ])
  expect(user.read(second)).toBe("theirs")
})

test("ten tasks that change one file in ten places are all merged without losing a change", async () => {
  user.write("shared.txt", text()).commit()
  user.write("shared.txt", text({ 39: "the user's own" }))
  const ids = Array.from({ length: 10 }, (_, index) => `bg_aaaaaaa${index}`)
  const children = await Promise.all(ids.map((id) => bench.ready({ id })))
  children.forEach((child, index) => {
    child.write("shared.txt", text({ 39: "the user's own", [index * 3]: `task ${index}` })).write(`own ${index}`, "x")
  })
  await Promise.all(ids.map((id) => bench.places.archive(id, user.top)))
  const merged = await Promise.all(ids.map((id) => merge(id)))
  expect(merged.map(({ kind }) => kind)).toEqual(ids.map(() => "merged"))
  const all = Object.fromEntries(ids.map((_, index) => [index * 3, `task ${index}`]))
  expect(user.read("shared.txt")).toBe(text({ ...all, 39: "the user's own" }))
  expect(ids.every((_, index) => user.has(`own ${index}`))).toBe(true)
  expect(user.worktrees()).toBe(1)
  expect(bench.leftovers()).toEqual([])
})

describe("a conflict", () => {
  const SECOND = "bg_bbbbbbbb"

  test("a conflict names the files and changes nothing, and a resumed agent gets both sides to solve it", async () => {
    user.write("a", text()).write("b", text()).commit()
    const [first, second] = [await bench.ready(), await bench.ready({ id: SECOND })]
    first.write("a", text({ 5: "first" }))
    second.write("a", text({ 5: "second" })).write("b", text({ 5: "second" }))
    await Promise.all([bench.places.archive(ID, user.top), bench.places.archive(SECOND, user.top)])
    expect((await merge()).kind).toBe("merged")
    const before = user.state()
    expect(await merge(SECOND)).toEqual({ kind: "conflict", files: ["a"] })
    expect(user.state()).toEqual(before)
    expect(await bench.unmerged()).toEqual([SECOND])
    const request = { taskID: SECOND, folder: user.top, timeLimit: 0 }
    const again = await bench.places.enter(request)
    expect(again.conflicts).toEqual(["a"])
    const child = new Repository(again.directory)
    expect(child.read("a")).toMatch(/<<<<<<<.*\nfirst\n=======\nsecond\n>>>>>>>/)
    expect(child.read("b")).toBe(text({ 5: "second" }))
    // Left as it is, it must not come home.
    await bench.places.archive(SECOND, user.top)
    expect(await merge(SECOND)).toEqual({ kind: "conflict", files: ["a"] })
    expect(user.state()).toEqual(before)
    const solving = new Repository((await bench.places.enter(request)).directory)
    solving.write("a", text({ 5: "both" }))
    expect(await bench.places.archive(SECOND, user.top)).toMatchObject({ files: ["a", "b"], added: 2, removed: 2 })
    expect(await merge(SECOND)).toMatchObject({ kind: "merged", files: ["a", "b"] })
    expect([user.read("a"), user.read("b")]).toEqual([text({ 5: "both" }), text({ 5: "second" })])
    expect(await merge(SECOND)).toEqual({ kind: "nothing" })
  })

  test.each([
    ["that git shows no diff of", "a -diff"],
    ["whose marks are short", "a conflict-marker-size=3"],
  ])("an unsolved conflict in a text %s stays a conflict", async (_what, attributes) => {
    user.write(".gitattributes", `${attributes}\n`).write("a", text()).commit()
    await bench.worked((child) => child.write("a", text({ 5: "theirs" })))
    user.write("a", text({ 5: "mine" }))
    expect((await merge()).kind).toBe("conflict")
    await bench.worked(() => {}, { again: true })
    expect(await merge()).toEqual({ kind: "conflict", files: ["a"] })
    expect(user.read("a")).toBe(text({ 5: "mine" }))
  })

  test("an unsolved conflict stays a conflict, whatever the user changes before the next resume", async () => {
    user.write("a", text()).write("b", text()).commit()
    await bench.worked((child) => child.write("a", text({ 5: "theirs" })))
    user.write("a", text({ 5: "mine" }))
    expect((await merge()).kind).toBe("conflict")
    await bench.worked(() => {}, { again: true })
    user.write("b", text({ 20: "mine" }))
    const again = await bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0 })
    expect(again.conflicts).toEqual(["a"])
    await bench.places.archive(ID, user.top)
    const before = user.state()
    expect(await merge()).toEqual({ kind: "conflict", files: ["a"] })
    expect(user.state()).toEqual(before)
    await bench.worked((child) => child.write("a", text({ 5: "both" })), { again: true })
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
    expect([user.read("a"), user.read("b")]).toEqual([text({ 5: "both" }), text({ 20: "mine" })])
  })

  test.each<[string, (child: Repository) => void, () => void, string[], RegExp?]>([
    [
      "an untracked file of the user's in the way",
      (child) => child.write("new", "theirs"),
      () => user.write("new", "mine"),
      ["new"],
    ],
    [
      "an ignored one",
      (child) => child.write("x.log", "theirs").git("add", "--force", "x.log"),
      () => user.write("x.log", "mine"),
      ["x.log"],
      /^x\.log is there, and git ignores it .*move it away, then merge again\.$/,
    ],
    [
      "an ignored one in a file's place",
      (child) => child.write("out.log/x", "theirs").git("add", "--force", "out.log"),
      () => user.write("out.log", "mine"),
      ["out.log/x"],
      /^out\.log is there, and git ignores it/,
    ],
    [
      "a folder with ignored files in a file's place",
      (child) => child.write("build", "theirs"),
      () => user.write("build/x.log", "mine"),
      ["build"],
      /^build is there, and git ignores it or what it holds/,
    ],
    [
      "a folder of which ignored files would be left",
      (child) => child.remove("src").write("src", "theirs"),
      () => user.write("src/x.log", "mine"),
      ["src"],
      /^src is there, and git ignores it or what it holds/,
    ],
    [
      "a file that the user changed and the task deleted",
      (child) => child.remove("a"),
      () => user.write("a", "mine"),
      ["a"],
    ],
    [
      "a file that the user deleted and the task changed",
      (child) => child.write("a", "theirs"),
      () => user.remove("a"),
      ["a"],
    ],
    [
      "a file that git was told not to look at",
      (child) => child.write("a", "theirs\n"),
      () => {
        user.git("update-index", "--assume-unchanged", "a")
        user.write("a", "mine, unseen\n")
      },
      ["a"],
      /^Git is told not to look at a, .*git update-index --no-skip-worktree --no-assume-unchanged, then merge again\.$/,
    ],
    [
      "a link of the user's above the file",
      (child) => child.write("dir/new", "theirs"),
      () => {
        mkdirSync(join(bench.folder, "elsewhere"))
        user.write(".git/info/exclude", "dir\n").link("dir", join(bench.folder, "elsewhere"))
      },
      ["dir/new"],
      /^dir is there, and git ignores it/,
    ],
  ])("a merge changes nothing and says what to do about %s", async (_what, theirs, mine, files, advice) => {
    user.write("a", "a\n").write("src/main", "m").write("z", text()).write(".gitignore", "*.log\n").commit()
    await bench.worked((child) => {
      child.write("z", text({ 1: "theirs" }))
      theirs(child)
    })
    mine()
    const before = user.state()
    const result = (await merge()) as { kind: string; files: readonly string[]; advice?: string }
    expect(result.kind).toBe("conflict")
    // Where a resume can solve it, that is what is said of any conflict.
    if (advice) expect(result.advice).toMatch(advice)
    else expect(result.advice).toBeUndefined()
    expect(result.files).toEqual(expect.arrayContaining(files))
    expect(user.state()).toEqual(before)
    expect(user.ours()).not.toContain(`refs/superagents-merge/${ID}`)
    expect(existsSync(join(bench.folder, "elsewhere/new"))).toBe(false)
  })

  test("a file that is the same on both sides is not a conflict", async () => {
    user.write("a", "a").commit()
    await bench.worked((child) => child.write("new", "same\n"))
    user.write("new", "same\n")
    expect((await merge()).kind).toBe("nothing")
  })

  test("nothing is merged while the user is in the middle of a merge of their own", async () => {
    user.write("a", "a\n").commit()
    user.git("checkout", "--quiet", "-b", "other")
    user.write("a", "other\n").commit()
    user.git("checkout", "--quiet", "main")
    user.write("a", "main\n").commit()
    await bench.worked((child) => child.write("b", "b"))
    expect(() => user.git("merge", "other")).toThrow()
    const before = user.state()
    await expect(merge()).rejects.toThrow(/^the checkout is in the middle of a merge\. Finish or abort it/)
    expect(user.state()).toEqual(before)
  })
})

describe("an undone merge", () => {
  test("a merge that meets a file the user is writing keeps the user's text and is undone", async () => {
    user.write("a", text()).write("b", text()).write("c", text()).commit()
    let count = 0
    bench.places = bench.worktrees({
      fault: (moment) => {
        if (moment === "merge: one file" && ++count === 2) user.write("c", "written meanwhile\n")
      },
    })
    await bench.worked((child) => {
      child.remove("a")
      child
        .write("b", text({ 1: "theirs" }))
        .write("c", text({ 1: "theirs" }))
        .write("d/e", "new")
    })
    const before = user.state()
    expect(await merge()).toMatchObject({
      kind: "conflict",
      files: ["c"],
      advice: expect.stringMatching(/^c was written/),
    })
    expect(user.state()).toEqual({ ...before, c: `644 ${Buffer.from("written meanwhile\n").toString("base64")}` })
    expect(user.ours()).not.toContain(`refs/superagents-merge/${ID}`)
  })

  test("an undone merge keeps what the user saved over a merged file and names it", async () => {
    user.write("a", text()).write("b", text()).write("c", text()).write("gone", "g").commit()
    let count = 0
    bench.places = bench.worktrees({
      fault: (moment) => {
        if (moment !== "merge: one file" || ++count !== 4) return
        // Each in its own way: over the merged file in place, as an editor does, of its mode, and where a file was removed.
        appendFileSync(join(user.top, "a"), "saved meanwhile\n")
        user.write("b.new", text({ 30: "saved meanwhile" }))
        renameSync(join(user.top, "b.new"), join(user.top, "b"))
        user.write("gone", "saved meanwhile\n").write("d", "written meanwhile\n")
      },
    })
    await bench.worked((child) => {
      child.remove("gone").write("d", "theirs\n")
      for (const name of ["a", "b", "c"]) child.write(name, text({ 1: "theirs" }))
    })
    bench.others.files.push("a", "b", "gone", "d", "b.new")
    const before = user.state()
    const conflict = (await merge()) as { kind: string; files: readonly string[] }
    expect(conflict.kind).toBe("conflict")
    expect([...conflict.files].sort()).toEqual(["a", "b", "d", "gone"])
    const now = user.state()
    for (const name of ["a", "b", "gone", "d"]) delete now[name]
    for (const name of ["a", "b", "gone", "d"]) delete before[name]
    expect(now).toEqual(before)
    expect(user.read("a")).toBe(`${text({ 1: "theirs" })}saved meanwhile\n`)
    expect([user.read("b"), user.read("gone")]).toEqual([text({ 30: "saved meanwhile" }), "saved meanwhile\n"])
    expect(user.read("d")).toBe("written meanwhile\n")
  })

  test("a merge keeps a file that the user writes right after it was compared", async () => {
    user.write(".gitattributes", "b filter=late\n").write("a", text()).write("b", text()).commit()
    // When git comes to look at b, the last time of all, it has looked at a.
    const late = 'case "$(ps -o args= -p $PPID)" in *diff-files*) echo written meanwhile > a ;; esac; cat'
    user.git("config", "filter.late.clean", late)
    await bench.worked((child) => child.write("a", text({ 1: "theirs" })).write("b", text({ 1: "theirs" })))
    const later = new Date(Date.now() + 3_600_000)
    utimesSync(join(user.top, "b"), later, later)
    bench.others.files.push("a")
    expect(await merge()).toMatchObject({ kind: "conflict", files: ["a"] })
    expect([user.read("a"), user.read("b")]).toEqual(["written meanwhile\n", text()])
  })

  test("a merge keeps a file saved in the same clock tick as the comparison if its length differs", async () => {
    user.write("a", text()).write("b", text()).commit()
    bench.places = bench.worktrees({
      fault: (moment) => {
        if (moment !== "merge: staged") return
        const { atime, mtime } = statSync(join(user.top, "a"))
        user.write("a", "saved\n")
        utimesSync(join(user.top, "a"), atime, mtime)
      },
    })
    utimesSync(join(user.top, "a"), 1_000_000, 1_000_000)
    await bench.worked((child) => child.write("a", text({ 1: "theirs" })).write("b", text({ 1: "theirs" })))
    expect(await merge()).toMatchObject({ kind: "conflict", files: ["a"] })
    expect([user.read("a"), user.read("b")]).toEqual(["saved\n", text()])
  })

  test.skipIf(process.getuid?.() === 0)("a merge that meets a folder without write permission is undone", async () => {
    user.write("a", text()).write("locked/b", text()).commit()
    await bench.worked((child) => child.write("a", text({ 1: "theirs" })).write("locked/b", text({ 1: "theirs" })))
    chmodSync(join(user.top, "locked"), 0o555)
    const before = user.state()
    await expect(merge()).rejects.toThrow(/locked\/b may not be written to/)
    chmodSync(join(user.top, "locked"), 0o755)
    expect(user.state()).toEqual(before)
  })
})

describe("later changes of the parent", () => {
  test("the parent's later changes are brought into the worktree before the work is checked again", async () => {
    user.write("a", text()).commit()
    const child = await bench.ready()
    child.write("a", text({ 1: "theirs" }))
    expect(await bench.places.bringIn(ID, user.top)).toEqual({ kind: "nothing" })
    user.write("a", text({ 30: "mine" })).write("new", "n")
    expect(await bench.places.bringIn(ID, user.top)).toMatchObject({ kind: "merged", files: ["a", "new"] })
    expect(child.read("a")).toBe(text({ 1: "theirs", 30: "mine" }))
    expect(await bench.places.bringIn(ID, user.top)).toEqual({ kind: "nothing" })
    expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: ["a"], added: 1, removed: 1 })
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
    expect(user.read("a")).toBe(text({ 1: "theirs", 30: "mine" }))
  })

  test("a parent's change that conflicts with the work leaves the worktree as it is", async () => {
    user.write("a", text()).commit()
    const child = await bench.ready()
    child.write("a", text({ 1: "theirs" }))
    user.write("a", text({ 1: "mine" }))
    expect(await bench.places.bringIn(ID, user.top)).toEqual({ kind: "conflict", files: ["a"] })
    expect(child.read("a")).toBe(text({ 1: "theirs" }))
  })
})

describe("git refs of a task's work", () => {
  test("clearing tasks deletes refs of merged and empty work, while unmerged work stays and is named", async () => {
    user.write("a", "a").commit()
    await bench.worked((child) => child.write("one", "1"), { id: "bg_merged00" })
    await bench.worked(() => {}, { id: "bg_empty000" })
    await bench.worked((child) => child.write("two", "2"), { id: "bg_unmerged" })
    await merge("bg_merged00")
    expect(await bench.unmerged()).toEqual(["bg_unmerged"])
    expect(await bench.places.clear(user.top, ["bg_merged00", "bg_empty000", "bg_unmerged", "bg_never000"])).toEqual([
      "bg_unmerged",
    ])
    expect(user.ours()).toEqual(["-base", "-start", ""].map((kind) => `refs/superagents${kind}/bg_unmerged`))
  })

  test("old refs are deleted at a start, but those of unmerged work only on request", async () => {
    const none = () => false
    user.write("a", "a").commit()
    await bench.worked(() => {}, { id: "bg_empty000" })
    await bench.worked((child) => child.write("two", "2"), { id: "bg_unmerged" })
    expect(await bench.places.expire(user.top, 0, true, none)).toEqual([])
    const later = Date.now() + 60_000
    expect(await bench.places.expire(user.top, later, false, none)).toEqual(["bg_empty000"])
    expect(await bench.places.expire(user.top, later, true, none)).toEqual(["bg_unmerged"])
    expect(user.ours()).toEqual([])
  })
})
