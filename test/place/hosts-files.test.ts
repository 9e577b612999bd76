import { execFileSync } from "node:child_process"
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs"
import { join } from "node:path"
import type { Readable } from "node:stream"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import { NoContact } from "../../src/features/hosts/connection.ts"
import type { OrderResult, RunOptions } from "../../src/features/hosts/fetching.ts"
import { fetchWork, type RepositoryHost, removeRemoteFolder, send } from "../../src/features/hosts/files.ts"
import type { Machine } from "../../src/features/hosts/hosts.ts"
import {
  completeMarkerPath,
  type FilesOrder,
  folderIn,
  hostRepositoryFolders,
} from "../../src/features/hosts/orders.ts"
import { runJob } from "../../src/features/hosts/remote-run.ts"
import { readRef, requireCheckout, writeRefs } from "../../src/features/worktrees/repository.ts"
import { eventually } from "../support/eventually.ts"
import { askIn } from "../support/far-files.ts"
import { pidIn } from "../support/process-id.ts"
import { Repository } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** What goes to another machine and what comes from it, by real git; and a machine that sends what it should not. */

/** What stands for the removal of a folder, where a test plays one that is cut off. */
let removing: ((path: string) => Promise<void>) | undefined
vi.mock("node:fs/promises", async (original) => {
  const real = await original<typeof import("node:fs/promises")>()
  const rm: typeof real.rm = (path, options) =>
    removing && options?.recursive ? removing(String(path)) : real.rm(path, options)
  const readdir = ((...args: Parameters<typeof real.readdir>) =>
    removing ? Promise.resolve([]) : real.readdir(...args)) as typeof real.readdir
  const rmdir: typeof real.rmdir = (path) => (removing ? removing(String(path)) : real.rmdir(path))
  return { ...real, rm, readdir, rmdir }
})

let bench: Bench
let user: Repository
let far: string

beforeEach(() => {
  bench = new Bench()
  user = bench.user
  far = join(bench.folder, "far")
  mkdirSync(far)
})
afterEach(() => bench.close())

const askThere = (order: FilesOrder, options?: RunOptions, env?: Record<string, string>): Promise<OrderResult> =>
  askIn(far, order, options, env)

const there = (ask: RepositoryHost["ask"] = askThere): RepositoryHost => ({
  name: "big",
  ask,
  folders: hostRepositoryFolders(join(far, "cache"), "key"),
})

/** The host, with other answers to the orders of this kind. */
const answering = (kind: FilesOrder["do"], change: (answered: OrderResult) => Partial<OrderResult>) =>
  there(async (order, options) => {
    if (order.do !== kind) return askThere(order, options)
    const { take, ...rest } = options ?? {}
    const answered = await askThere(order, rest)
    const answer = { ...answered, ...change(answered) }
    await take?.(answer.out)
    return answer
  })

const json = (value: unknown) => ({ out: Buffer.from(JSON.stringify(value)) })

const began = async (from = there(), copy: readonly string[] = []) => {
  await bench.places.capture(ID, user.top)
  const checkout = await requireCheckout(user.top)
  await send(from, checkout, { taskID: ID, commit: (await readRef(checkout, "state", ID)) as string, copy })
  return new Repository(folderIn(from.folders, ID))
}

/** A host whose agent has made this commit. */
const saying = (commit: string) =>
  there(async (order, options) => (order.do === "commit" ? json({ commit, unsaved: [] }) : askThere(order, options)))

const home = async (from: RepositoryHost) => {
  const to = await requireCheckout(user.top)
  const found = await fetchWork(from, to, ID)
  const { commit: state, ignored } = found ?? {}
  await writeRefs(to, ID, { ...(state && { state }), ...(ignored && { ignored }), incoming: undefined })
  return found
}

/** Commits that a sentence names. */
const idsIn = (sentence = ""): string[] => [...new Set(sentence.match(/\b[0-9a-f]{40}\b/g))]

const refs = () => user.git("for-each-ref", "--format=%(refname)").trim().split("\n")

describe("files on a host", () => {
  test.each<[string, (child: Repository) => void, string]>([
    ["looked at an older commit", (child) => void child.git("checkout", "--quiet", "HEAD~1"), "at another commit"],
    [
      "rebased",
      (child) => {
        child.git("branch", "theirs")
        child.git("checkout", "--quiet", "HEAD~1")
        child.write("b", "another\n").commit()
        child.write("c", "not committed\n").git("add", "c")
        expect(() => child.git("rebase", "--autostash", "theirs")).toThrow()
      },
      "in the middle of a rebase",
    ],
  ])("what an agent had committed before it %s at its end is brought here and named", async (_what, work, during) => {
    user.write("a", "a\n").commit()
    const child = await began()
    child.write("b", "b\n").commit()
    work(child)
    const commits = child.git("log", "--reflog", "HEAD", "--format=%H").trim().split("\n")
    await home(there())
    const [note = ""] = (await bench.places.archive(ID, user.top)).notes ?? []
    expect(note).toContain(during)
    const ours = user.git("log", "--format=%H", `refs/superagents/${ID}`).trim().split("\n")
    expect(ours).toEqual(expect.arrayContaining([...commits, ...idsIn(note)]))
    expect(await bench.places.clear(user.top, [ID])).toEqual([ID])
    const { preface } = await bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0, again: true })
    expect(idsIn(preface)).toEqual(idsIn(note))
  })

  test("what a killed relay left of an upload is removed from the host with the task's folder", async () => {
    user.write("a", "a\n").commit()
    const { folders } = there()
    await began()
    const before = readdirSync(folders.root)
    for (const name of [`${ID}.bundle`, `${ID}.copy.tar`]) writeFileSync(join(folders.root, name), "half")
    mkdirSync(join(folders.root, `${ID}.copy`, "sub"), { recursive: true })
    await removeRemoteFolder(there(), ID)
    expect(readdirSync(folders.root)).toEqual(before)
  })

  test("what a killed process left of sent and fetched files, here and on the host, is removed with the task", async () => {
    user.write("a", "a\n").commit()
    const child = await began()
    for (const way of ["outgoing", "incoming"]) user.git("update-ref", `refs/superagents-${way}/${ID}`, "HEAD")
    const worktree = await bench.ready({ again: true })
    for (const { top } of [child, worktree]) mkdirSync(`${top}.ignored/sub`, { recursive: true })
    await removeRemoteFolder(there(), ID)
    await bench.places.archive(ID, user.top)
    expect(readdirSync(join(there().folders.root, "work"))).toEqual([])
    expect(bench.leftovers()).toEqual([])
    expect(await bench.places.clear(user.top, [ID])).toEqual([])
    expect(user.ours()).toEqual([])
  })

  test("files are sent to a host as they are and come back as the agent left them, committed or not", async () => {
    user.write("a", "a\n").write("gone", "x").commit()
    user.write("a", "a, not committed\n").write("new", "untracked")
    const child = await began()
    expect([child.read("a"), child.read("new")]).toEqual(["a, not committed\n", "untracked"])
    child.write("b", "b").git("add", "b")
    child.git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "theirs")
    child.write("c", "c")
    child.git("rm", "-q", "gone")
    const before = user.state()
    await home(there())
    await removeRemoteFolder(there(), ID)
    expect(user.state()).toEqual(before)
    expect(existsSync(folderIn(there().folders, ID))).toBe(false)
    expect((await bench.places.show(ID, user.top, 10)).files.toSorted()).toEqual(["b", "c", "gone"])
  })

  test("files half removed on a host when the connection broke do not count as the agent's deletions", async () => {
    user.write("a", "a\n").commit()
    const child = await began()
    child.write("b", "b")
    const came = await home(there())
    // Whoever removes the folder gets as far as one file, and dies.
    removing = async (path) => {
      if (existsSync(join(path, "a"))) rmSync(join(path, "a"))
      throw new Error("it died")
    }
    await expect(removeRemoteFolder(there(), ID, came?.commit)).rejects.toThrow("big: it died")
    removing = undefined
    expect(existsSync(join(child.top, "b"))).toBe(true)
    expect(await home(there())).toBeUndefined()
    expect((await bench.places.show(ID, user.top, 10)).files).toEqual(["b"])
    await removeRemoteFolder(there(), ID, came?.commit)
    expect(readdirSync(join(there().folders.root, "work"))).toEqual([])
  })

  test("a folder on a host that has changed since it was fetched is not removed", async () => {
    user.write("a", "a\n").commit()
    const child = await began()
    child.write("b", "b")
    const came = await home(there())
    child.write("b", "by a later run")
    expect((await home(there()))?.commit).not.toBe(came?.commit)
    await removeRemoteFolder(there(), ID, came?.commit)
    expect(child.read("b")).toBe("by a later run")
    await removeRemoteFolder(there(), ID)
    await removeRemoteFolder(there(), ID, came?.commit)
    expect(existsSync(folderIn(there().folders, ID))).toBe(false)
  })

  test("work at an old commit is fetched after many tasks of newer commits have left the host", async () => {
    user.write("a", "a\n").commit()
    const child = await began()
    const store = new Repository(there().folders.store, false)
    const tree = store.git("rev-parse", `refs/have/${ID}^{tree}`).trim()
    const newer = store.git("-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", tree, "-m", "newer").trim()
    for (let nth = 0; nth < 25; nth++) store.git("update-ref", `refs/have/bg_0000${nth}`, newer)
    await removeRemoteFolder(there(), "bg_00001")
    expect(store.git("for-each-ref", "--format=%(refname)", "refs/have").trim().split("\n")).toHaveLength(21)
    child.write("b", "b")
    expect(await home(there())).toBeDefined()
    expect(user.git("show", `refs/superagents/${ID}:b`)).toBe("b")
  })

  test("files that git ignores are not sent to a host, except those that its option names", async () => {
    user.write(".gitignore", ".env\n*.key\n").write("a", "a").commit()
    user.write(".env", "SECRET").write("my.key", "KEY")
    const child = await began(there(), ["*.key"])
    expect(existsSync(join(child.top, ".env"))).toBe(false)
    expect(child.read("my.key")).toBe("KEY")
  })

  describe("ignored files of an agent", () => {
    const ignored = `refs/superagents-ignored/${ID}`
    const shown = (path: string) => user.git("show", `${ignored}:${path}`)
    /** As if the run had begun a moment ago: files copied to the host are no work of the agent's. */
    const aged = () =>
      utimesSync(completeMarkerPath(there().folders, ID), Date.now() / 1000 - 0.06, Date.now() / 1000 - 0.06)
    beforeEach(() => void user.write(".gitignore", "dist/\n.env\n").write("a", "a").commit())

    test("ignored files that an agent made on a host are fetched and named, but not merged or left there", async () => {
      user.write(".env", "secret")
      const child = await began(there(), [".env"])
      await home(there())
      expect(user.ours()).not.toContain(ignored)
      aged()
      child.write("a", "theirs").write("dist/out.js", "made\n")
      await home(there())
      expect((await bench.places.archive(ID, user.top)).notes).toEqual([
        `It made a file that git ignores: dist/out.js (kept and not merged; git restore --overlay --source=${ignored} :/ brings it)`,
      ])
      expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
      expect([shown("dist/out.js"), user.files()["dist/out.js"]]).toEqual(["made\n", undefined])
      await removeRemoteFolder(there(), ID)
      expect(new Repository(there().folders.store).ours()).toEqual([])
    })

    test("ignored files that an agent made on a host after the clock was set back are fetched", async () => {
      const child = await began()
      child.write("dist/out.js", "made\n")
      const start = Date.now() / 1000 + 3600
      for (const file of [join(child.top, ".git"), completeMarkerPath(there().folders, ID)])
        utimesSync(file, start, start)
      await home(there())
      expect(shown("dist/out.js")).toBe("made\n")
    })

    test("ignored files that an agent made on a host return in a later run, together with its new ones", async () => {
      const child = await began()
      aged()
      child.write("dist/out.js", "made\n")
      await home(there())
      await removeRemoteFolder(there(), ID)
      const from = await requireCheckout(user.top)
      await send(there(), from, { taskID: ID, commit: (await readRef(from, "state", ID)) as string, copy: [] })
      aged()
      child.write("dist/more.js", "more\n")
      await home(there())
      expect(["dist/out.js", "dist/more.js"].map(shown)).toEqual(["made\n", "more\n"])
    })
  })

  test("files outside of the checkout are not sent to a host, whatever its option's pattern says", async () => {
    user.write(".gitignore", "link\n").write("a", "a").commit()
    writeFileSync(join(bench.folder, "outside"), "SECRET")
    symlinkSync(join(bench.folder, "outside"), join(user.top, "link"))
    const child = await began(there(), ["../outside", join(bench.folder, "outside"), "link"])
    expect(existsSync(join(child.top, "..", "outside"))).toBe(false)
    // A link goes as the link that it is: what it leads to does not.
    expect(child.git("ls-files", "--others", "--ignored", "--exclude-standard").trim()).toBe("link")
    expect(readFileSync(join(bench.folder, "outside"), "utf8")).toBe("SECRET")
    expect(execFileSync("sh", ["-c", `find ${far} -type f | xargs grep -l SECRET || true`]).toString()).toBe("")
  })

  test("files and programs that were to be sent are closed when the connection breaks before they are read", async () => {
    user.write(".gitignore", "*.key\n").write("a", "a").write("my.key", "x".repeat(1_000_000)).commit()
    const inputs: Readable[] = []
    const breaking = (kind: FilesOrder["do"]) =>
      there(async (order, options) => {
        if (order.do !== kind) return askThere(order, options)
        inputs.push(options?.input as Readable)
        throw new NoContact("it broke")
      })
    await expect(began(breaking("receive"), ["*.key"])).rejects.toThrow("it broke")
    await expect(began(breaking("copy"), ["*.key"])).rejects.toThrow("it broke")
    expect(inputs.map(({ destroyed }) => destroyed)).toEqual([true, true])
  })

  test("a commit that the host already has as an ancestor of another one is there at once", async () => {
    user.write("a", "one").commit()
    user.write("a", "two").commit()
    await began()
    user.git("checkout", "-q", "HEAD~1")
    expect((await began()).read("a")).toBe("one")
  })

  test("a shallow checkout is sent to a host with as much history as it has", async () => {
    const origin = bench.repository("origin")
    for (const text of ["one", "two", "three"]) origin.write("a", text).commit()
    user = new Repository(join(bench.folder, "shallow"))
    origin.git("clone", "-q", "--depth=1", `file://${origin.top}`, user.top)
    const child = await began()
    expect(child.read("a")).toBe("three")
    child.write("a", "four")
    await home(there())
    expect((await bench.places.show(ID, user.top, 10)).files).toEqual(["a"])
  })
})

/** What the agent changed comes home, whatever it did to git there. */
describe("work hidden from git", () => {
  beforeEach(() => void user.write("a", "a\n").write("d/b", "b\n").write("c", "c\n").commit())

  const changed = async () => (await bench.places.show(ID, user.top, 10)).files.toSorted()

  test("edits on a host that git was told not to look at are fetched too", async () => {
    const child = await began()
    child.write("a", "hidden\n").git("update-index", "--assume-unchanged", "a")
    child.write("d/b", "hidden\n").git("update-index", "--skip-worktree", "d/b")
    await home(there())
    expect(await changed()).toEqual(["a", "d/b"])
  })

  test("nested repositories on a host with unusual names are named, and all other work is fetched", async () => {
    const child = await began()
    child.write("a", "changed\n")
    for (const name of ['we"ird', "line\nbreak", "tüte"]) {
      const inner = new Repository(join(child.top, name))
      inner.git("init", "-q")
      inner.write("work", "x").commit()
    }
    const found = await home(there())
    expect(found?.unsaved.toSorted()).toEqual(["line break", "tüte", 'we"ird'])
    expect(await changed()).toEqual(["a"])
  })

  test("a name that git refuses and a pipe in a file's place do not hold back other work", async () => {
    const child = await began()
    child.write("d/git~1", "x").write("a", "changed\n").write("new", "n").write("d/.git/config", "no repository")
    execFileSync("rm", [join(child.top, "c")])
    execFileSync("mkfifo", [join(child.top, "c")])
    const found = await home(there())
    expect(found?.unsaved).toEqual(["d/git~1", "d/.git"])
    expect(await changed()).toEqual(["a", "c", "new"])
  })

  test("what an agent does in a submodule on a host is named, and what it only checks out there is not", async () => {
    const library = bench.repository("library")
    library.write("lib", "v1").commit()
    for (const name of ["kept", "changed", "filled"]) user.git("submodule", "add", "--quiet", library.top, name)
    user.commit()
    const child = await began()
    child.git("submodule", "--quiet", "update", "--init", "kept", "changed")
    const inner = new Repository(join(child.top, "changed"))
    inner.write("lib", "theirs").commit()
    child.write("filled/own", "theirs")
    expect((await home(there()))?.unsaved).toEqual(["changed", "filled"])
  })

  test("a host's git does nothing that a repository's configuration says that an agent wrote in a submodule", async () => {
    const library = bench.repository("library")
    const commit = library.write("lib", "v1").commit()
    user.git("submodule", "add", "--quiet", library.top, "lib")
    user.commit()
    const child = await began()
    const ran = join(bench.folder, "ran")
    const config = `[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\turl = ${library.top}\n\tpromisor = true\n\tuploadpack = "touch ${ran}; false"\n`
    child.write("lib/.git/HEAD", `${commit}\n`).write("lib/.git/refs/x", "").write("lib/.git/objects/x/x", "x")
    child.write("lib/.git/config", config).write("a", "changed\n")
    expect((await home(there()))?.unsaved).toEqual(["lib"])
    expect([existsSync(ran), await changed()]).toEqual([false, ["a"]])
  })

  test("an agent that replaces or removes the folder's git repository on a host loses no work", async () => {
    const child = await began()
    child.write("a", "changed\n")
    rmSync(join(child.top, ".git"))
    await home(there())
    expect(await changed()).toEqual(["a"])
    child.git("init", "-q")
    child.write("new", "n").git("add", ".")
    await home(there())
    expect(await changed()).toEqual(["a", "new"])
  })
})

describe("a later run on a host", () => {
  beforeEach(() => void user.write(".gitignore", "*.key\n").write("a", "a\n").commit())

  test("a later run starts and keeps the agent's file even if the agent committed what the host's option sends", async () => {
    user.write("my.key", "MINE").write("conf/x.key", "X").write("conf/deep/y.key", "Y").write("other.key", "O")
    const child = await began(there(), ["*.key"])
    child.write("my.key", "the agent's").git("add", "-f", "my.key")
    child.git("rm", "-q", "--cached", "a")
    rmSync(join(child.top, "conf"), { recursive: true })
    child.write("conf", "a file by now").git("add", "-f", "conf")
    const { commit = "" } = (await home(there())) ?? {}
    await send(there(), await requireCheckout(user.top), { taskID: ID, commit, copy: ["*.key"] })
    expect([child.read("my.key"), child.read("conf"), child.read("other.key")]).toEqual([
      "the agent's",
      "a file by now",
      "O",
    ])
  })

  test("a later run starts in a folder in which the agent's git was killed", async () => {
    const child = await began()
    child.git("init", "-q", "nested")
    child.write("a", "theirs\n").write("nested/own", "theirs")
    const { commit, unsaved } = (await home(there())) ?? { commit: "", unsaved: [] }
    expect(unsaved).toEqual(["nested"])
    const own = child.git("rev-parse", "--git-dir").trim()
    for (const name of ["index.lock", "HEAD.lock"]) writeFileSync(join(own, name), "")
    await send(there(), await requireCheckout(user.top), { taskID: ID, commit, copy: [], inPlace: true })
    expect([child.read("a"), child.read("nested/own")]).toEqual(["theirs\n", "theirs"])
    expect(child.git("status", "--porcelain").trim()).toBe("?? nested/")
  })
})

test("a job that could not be stopped without contact is killed before the work is fetched", async () => {
  user.write("a", "a\n").commit()
  const child = await began()
  let reached = true
  const ask: Machine["ask"] = async (order) => {
    if (!reached) throw new NoContact("cut")
    return askIn(far, order)
  }
  const stop = new AbortController()
  const command = "echo $$ >pid; while [ -e pid ]; do sleep 0.02; done; echo late >late"
  const job = { taskID: ID, command, folder: child.top, timeLimit: 0, signal: stop.signal }
  const ends = runJob({ name: "big", settings: { contactTimeout: 0 }, ask }, job)
  await eventually(() => existsSync(join(child.top, "pid")) && child.read("pid") !== "")
  const pid = pidIn(join(child.top, "pid"))
  reached = false
  stop.abort()
  expect(await ends).toEqual({ why: "stopped", output: "" })
  expect(existsSync(`/proc/${pid}`)).toBe(true)
  await home(there())
  await eventually(() => !existsSync(`/proc/${pid}`))
})

describe("missing programs on a host", () => {
  beforeEach(() => void user.write("a", "a").commit())

  const without = (path: string) =>
    there((order, options) => askThere(order, options, { PATH: `${join(far, "bin")}:${path}` }))
  const tool = (name: string, body: string) => {
    mkdirSync(join(far, "bin"), { recursive: true })
    writeFileSync(join(far, "bin", name), `#!/bin/sh\n${body}\n`, { mode: 0o755 })
  }

  test("a host without git gives an error that says what to do", async () => {
    await expect(began(without("/nowhere"))).rejects.toThrow(
      "git was not found on big. Install git 2.38 or newer there, or give the task another `place`.",
    )
  })

  test("a host with a too old git gives an error that names the needed version", async () => {
    tool("git", `case "$*" in *--version) echo git version 2.30.2;; *) PATH='${process.env.PATH}' exec git "$@";; esac`)
    await expect(began(without(process.env.PATH ?? ""))).rejects.toThrow(
      "big has git 2.30.2; 2.38 or newer is needed. Install a newer git there, or give the task another `place`.",
    )
  })

  test("a full disk on a host is named when files are sent or the work is archived", async () => {
    const full = (problem: string) => () => ({ problem })
    const sent = "ENOSPC: no space left on device, write"
    await expect(began(answering("receive", full(sent)))).rejects.toThrow(
      `The disk of big is full: ${sent}. Make room there, then try again.`,
    )
    await began()
    const failed = answering("commit", full("git write-tree: fatal: unable to write: No space left on device"))
    await expect(home(failed)).rejects.toThrow("The disk of big is full")
    const quota = answering("commit", full("git add: error: Disk quota exceeded"))
    await expect(home(quota)).rejects.toThrow("The disk of big is full")
  })

  test("a host whose cache folder cannot be written gives an error that says so", async () => {
    writeFileSync(join(far, "cache"), "no folder")
    await expect(began()).rejects.toThrow(/^big: ENOTDIR: not a directory, mkdir '/)
  })
})

describe("a hostile host", () => {
  beforeEach(async () => {
    user.write("a", "a").commit()
    user.git("branch", "secret")
  })

  test.each(["HEAD", "refs/heads/secret", "--all", "HEAD:a", "", "0000"])(
    "a host that calls its commit %j is refused, and no ref here changes",
    async (name) => {
      const child = await began()
      child.write("b", "b")
      const before = refs()
      for (const told of [{ commit: name }, { commit: "1".repeat(40), ignored: name }]) {
        const hostile = answering("commit", () => json({ ...told, unsaved: [] }))
        await expect(home(hostile)).rejects.toThrow("what came from big is no commit")
      }
      expect(refs()).toEqual(before)
    },
  )

  test("a host that claims to have commits under names of local branches cannot spoil a launch", async () => {
    const hostile = answering("look", ({ out }) => {
      const { git, commits } = JSON.parse(Buffer.from(out).toString())
      return json({ git, commits: [...commits, "HEAD", "refs/heads/secret", "--all", "@{-1}", 3, null] })
    })
    const child = await began(hostile)
    expect(child.read("a")).toBe("a")
  })

  test("a bundle from a host with foreign refs brings only the ref of its task", async () => {
    const child = await began()
    child.write("b", "b").git("add", "b")
    child.git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "theirs")
    const store = there().folders.store
    const before = refs()
    const refsThere = ["refs/heads/secret", "refs/heads/main", "refs/superagents/bg_other", "refs/tags/x"]
    const hostile = answering("bundle", () => {
      for (const ref of refsThere) execFileSync("git", ["-C", store, "update-ref", ref, `refs/work/${ID}`])
      const range = [`refs/work/${ID}`, ...refsThere, `^refs/have/${ID}`]
      return { out: execFileSync("git", ["-C", store, "bundle", "create", "-q", "-", ...range]) }
    })
    const at = user.git("rev-parse", "secret")
    await home(hostile)
    expect(user.git("rev-parse", "secret")).toBe(at)
    expect(refs()).toEqual(before)
  })

  test("a bundle from a host that is none or points to a local repository is refused", async () => {
    const child = await began()
    child.write("b", "b")
    user.git("update-ref", `refs/work/${ID}`, "HEAD")
    for (const text of ["no bundle at all", `gitdir: ${join(user.top, ".git")}\n`, ""]) {
      const hostile = answering("bundle", () => ({ out: Buffer.from(text) }))
      await expect(home(hostile)).rejects.toThrow("what came from big is no bundle of git")
    }
  })

  test("a bundle from a host with another commit than announced is refused", async () => {
    const child = await began()
    child.write("b", "b")
    for (const told of [{ commit: "1".repeat(40) }, { ignored: "1".repeat(40) }]) {
      const hostile = answering("commit", ({ out }) => json({ ...JSON.parse(Buffer.from(out).toString()), ...told }))
      await expect(home(hostile)).rejects.toThrow("what came from big is not what was committed there")
    }
    expect(refs().filter((ref) => ref.includes("incoming"))).toEqual([])
  })

  test.each([
    ["a name that leads out", "../out"],
    ["git's own folder", ".git"],
    ["git's own folder in other letters", ".GIT"],
  ])("a tree from a host with %s is refused", async (_what, name) => {
    const child = await began()
    const blob = child.git("hash-object", "-w", "a").trim()
    // Written as bytes: no git of today makes such a tree by itself.
    const entry = Buffer.concat([Buffer.from(`100644 ${name}\0`), Buffer.from(blob, "hex")])
    writeFileSync(join(far, "tree"), entry)
    const tree = child.git("hash-object", "-t", "tree", "-w", "--literally", join(far, "tree")).trim()
    const commit = child
      .git("-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", tree, "-p", "HEAD", "-m", "x")
      .trim()
    child.git("update-ref", `refs/work/${ID}`, commit)
    const before = refs()
    await expect(home(saying(commit))).rejects.toThrow()
    expect(refs()).toEqual(before)
    expect(existsSync(join(bench.folder, "out"))).toBe(false)
  })

  test("a tree from a host that unfolds without end is refused without blocking anything else", async () => {
    const child = await began()
    const tree = (input: string) => execFileSync("git", ["mktree"], { cwd: child.top, input, encoding: "utf8" }).trim()
    for (const leaf of [tree(""), child.git("rev-parse", "HEAD^{tree}").trim()]) {
      let unfolded = leaf
      for (let level = 0; level < 6; level++)
        unfolded = tree(Array.from({ length: 10 }, (_, at) => `040000 tree ${unfolded}\t${at}\n`).join(""))
      const commit = child
        .git("-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", unfolded, "-p", "HEAD", "-m", "x")
        .trim()
      child.git("update-ref", `refs/work/${ID}`, commit)
      const before = refs()
      const asked = performance.now()
      await expect(home(saying(commit))).rejects.toThrow("it adds more than 200,000 files and folders or 16 GB")
      expect(performance.now() - asked).toBeLessThan(10_000)
      expect(refs()).toEqual(before)
    }
  })

  test("files from a host that unpack to more than a disk holds are refused without blocking anything else", async () => {
    const child = await began()
    writeFileSync(join(far, "zeros"), Buffer.alloc(16 * 2 ** 20))
    const blob = child.git("hash-object", "-w", join(far, "zeros")).trim()
    const input = Array.from({ length: 1100 }, (_, at) => `100644 blob ${blob}\t${at}\n`).join("")
    const tree = execFileSync("git", ["mktree"], { cwd: child.top, input, encoding: "utf8" }).trim()
    const commit = child
      .git("-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", tree, "-p", "HEAD", "-m", "x")
      .trim()
    child.git("update-ref", `refs/work/${ID}`, commit)
    const before = refs()
    await expect(home(saying(commit))).rejects.toThrow("it adds more than 200,000 files and folders or 16 GB")
    expect(refs()).toEqual(before)
  })

  test("links, filters and hooks in a host's work make a merge write nowhere else and run nothing", async () => {
    const mark = join(bench.folder, "ran")
    const child = await began()
    mkdirSync(join(bench.folder, "outside"))
    symlinkSync(join(bench.folder, "outside"), join(child.top, "out"))
    child.write(".gitattributes", "* filter=planted merge=planted\n")
    child.write(".git-hooks/post-checkout", `#!/bin/sh\ntouch ${mark}\n`)
    child.write(".gitmodules", '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch ran"\n')
    child.git("config", "core.hooksPath", ".git-hooks")
    child.git("config", "filter.planted.clean", `touch ${mark}; cat`)
    child.git("config", "filter.planted.smudge", `touch ${mark}; cat`)
    await home(there())
    // There it is that machine's own affair.
    const ran = existsSync(mark)
    expect((await bench.places.merge(ID, user.top)).kind).toBe("merged")
    expect(existsSync(mark)).toBe(ran)
    expect(user.git("config", "--list", "--local")).not.toContain("planted")
    expect(user.git("config", "--list", "--local")).not.toContain("hookspath")
    // What was written behind the link would have gone out.
    const again = await bench.ready({ again: true })
    expect(existsSync(join(again.top, ".gitattributes"))).toBe(true)
    expect(existsSync(join(bench.folder, "outside", "x"))).toBe(false)
  })

  test.each([
    ["no JSON", "no json", false],
    ["no names", '{"count":1,"out":0,"names":[1]}', false],
    ["more names than are told", '{"count":1,"out":0,"names":["a","b","c","d"]}', false],
    ["a long name, which is cut,", `{"count":1,"out":0,"names":["${"x".repeat(9000)}"]}`, true],
  ])("%s in a host's list of ignored files is harmless", async (_what, text, isTold) => {
    await began()
    const store = new Repository(there().folders.store)
    const hostile = answering("commit", ({ out }) => {
      const ignored = store.git("commit-tree", `refs/have/${ID}^{tree}`, "-m", `x\n\n${text}`).trim()
      store.git("update-ref", `refs/superagents-ignored/${ID}`, ignored)
      return json({ ...JSON.parse(Buffer.from(out).toString()), ignored })
    })
    expect(await home(hostile)).toHaveProperty("ignored")
    const [note = ""] = (await bench.places.archive(ID, user.top)).notes ?? []
    expect(note.length < 600 && note.includes("xxx")).toBe(isTold)
  })

  test("thousands of file names with terminal control codes from a host are cleaned and limited", async () => {
    await began()
    const names = Array.from({ length: 5000 }, (_, at) => `\u001b[2Jnested ${at} ${"x".repeat(1000)}`)
    const hostile = answering("commit", ({ out }) => {
      const { commit } = JSON.parse(Buffer.from(out).toString())
      return json({ commit, unsaved: names })
    })
    const { unsaved = [] } = (await home(hostile)) ?? {}
    expect(unsaved.length).toBeLessThanOrEqual(100)
    expect(unsaved[0]).not.toContain("\u001b")
    expect(unsaved.every((name) => name.length <= 200)).toBe(true)
  })
})
