import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import type { Ran, RunOptions } from "../../src/place/host/fetching.ts"
import { fetchHome, removeThere, send, settleIncoming, type There } from "../../src/place/host/files.ts"
import { folderIn, roomsIn } from "../../src/place/host/scripts.ts"
import { checkoutOf } from "../../src/place/worktree/checkout.ts"
import { readRef, writeRefs } from "../../src/place/worktree/refs.ts"
import { runIn } from "../support/far-shell.ts"
import { Repository } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** What goes to another machine and what comes from it, by real git; and a machine that sends what it should not. */

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

const runThere = (line: string, options?: RunOptions, env?: Record<string, string>): Promise<Ran> =>
  runIn(far, line, options, env)

const there = (run: There["run"] = runThere): There => ({ name: "big", run, rooms: roomsIn(join(far, "cache"), "key") })

/** The host, with other answers to the lines that this finds. */
const answering = (finds: RegExp, change: (ran: Ran) => Partial<Ran>) =>
  there(async (line, options) => {
    const { take, ...rest } = options ?? {}
    const ran = await runThere(line, rest)
    const answer = finds.test(line) ? { ...ran, ...change(ran) } : ran
    take?.(answer.out)
    return answer
  })

const began = async (from = there(), copy: readonly string[] = []) => {
  await bench.places.capture(ID, user.top)
  const checkout = await checkoutOf(user.top)
  await send(from, checkout, { taskID: ID, commit: (await readRef(checkout, "state", ID)) as string, copy })
  return new Repository(folderIn(from.rooms, ID))
}

const home = async (from: There) => {
  const to = await checkoutOf(user.top)
  const found = await fetchHome(from, to, ID)
  if (found) await writeRefs(to, ID, { state: found.commit })
  await settleIncoming(to, ID)
  return found
}

const refs = () => user.git("for-each-ref", "--format=%(refname)").trim().split("\n")

describe("files", () => {
  test("go there as they are, and come back as they were left, committed or not", async () => {
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
    await removeThere(there(), ID)
    expect(user.state()).toEqual(before)
    expect(existsSync(folderIn(there().rooms, ID))).toBe(false)
    expect((await bench.places.show(ID, user.top, 10)).files.toSorted()).toEqual(["b", "c", "gone"])
  })

  test("that were half removed there when the way was cut are not taken for what the agent has deleted", async () => {
    user.write("a", "a\n").commit()
    const child = await began()
    child.write("b", "b")
    const came = await home(there())
    // Whoever removes the folder gets as far as one file, and dies with the shell that started it, as at a cut.
    const bin = join(bench.folder, "bin")
    mkdirSync(bin)
    const die = 'for f; do [ ! -e "$f/a" ] || { unlink "$f/a"; kill -9 $PPID; exit 1; }; done'
    for (const [program, removes] of [
      ["rm", "*"],
      ["git", '*"worktree remove"*'],
    ])
      writeFileSync(
        join(bin, program as string),
        `#!/bin/sh\ncase "$*" in ${removes}) ${die};; esac\nPATH='${process.env.PATH}' exec ${program} "$@"\n`,
        { mode: 0o755 },
      )
    const dying = there((line, options) => runThere(line, options, { PATH: `${bin}:${process.env.PATH}` }))
    await expect(removeThere(dying, ID, came?.commit)).rejects.toThrow("big: ")
    expect(await home(there())).toBeUndefined()
    expect((await bench.places.show(ID, user.top, 10)).files).toEqual(["b"])
    await removeThere(there(), ID, came?.commit)
    expect(readdirSync(join(there().rooms.room, "work"))).toEqual([])
  })

  test("of a folder that has something else by now than came home are not removed", async () => {
    user.write("a", "a\n").commit()
    const child = await began()
    child.write("b", "b")
    const came = await home(there())
    child.write("b", "by a later run")
    expect((await home(there()))?.commit).not.toBe(came?.commit)
    await removeThere(there(), ID, came?.commit)
    expect(child.read("b")).toBe("by a later run")
    await removeThere(there(), ID)
    await removeThere(there(), ID, came?.commit)
    expect(existsSync(folderIn(there().rooms, ID))).toBe(false)
  })

  test("that git ignores stay here, but for those that the host's own option names", async () => {
    user.write(".gitignore", ".env\n*.key\n").write("a", "a").commit()
    user.write(".env", "SECRET").write("my.key", "KEY")
    const child = await began(there(), ["*.key"])
    expect(existsSync(join(child.top, ".env"))).toBe(false)
    expect(child.read("my.key")).toBe("KEY")
  })

  test("outside of the checkout are not sent, whatever a pattern says", async () => {
    user.write(".gitignore", "link\n").write("a", "a").commit()
    writeFileSync(join(bench.folder, "outside"), "SECRET")
    symlinkSync(join(bench.folder, "outside"), join(user.top, "link"))
    const child = await began(there(), ["../outside", join(bench.folder, "outside"), "link"])
    expect(existsSync(join(child.top, "..", "outside"))).toBe(false)
    // A link goes as the link that it is: what it leads to does not.
    expect(child.git("ls-files", "--others", "--ignored", "--exclude-standard").trim()).toBe("link")
    expect(readFileSync(join(bench.folder, "outside"), "utf8")).toBe("SECRET")
    const sent = await runThere(`find ${far} -type f | xargs grep -l SECRET`)
    expect(Buffer.from(sent.out).toString()).toBe("")
  })

  test("of a commit that the host has as part of another one are there at once", async () => {
    user.write("a", "one").commit()
    user.write("a", "two").commit()
    await began()
    user.git("checkout", "-q", "HEAD~1")
    expect((await began()).read("a")).toBe("one")
  })

  test("of a shallow checkout go as far as that has them", async () => {
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

describe("what a host lacks", () => {
  beforeEach(() => void user.write("a", "a").commit())

  const without = (path: string) =>
    there((line, options) => runThere(line, options, { PATH: `${join(far, "bin")}:${path}` }))
  const tool = (name: string, body: string) => {
    mkdirSync(join(far, "bin"), { recursive: true })
    writeFileSync(join(far, "bin", name), `#!/bin/sh\n${body}\n`, { mode: 0o755 })
  }

  test("git: it is said, and what to do", async () => {
    await expect(began(without("/nowhere"))).rejects.toThrow(
      "git was not found on big. Install git 2.38 or newer there, or give the task another `place`.",
    )
  })

  test("a git that is new enough", async () => {
    tool("git", "echo git version 2.30.2")
    await expect(began(without(process.env.PATH ?? ""))).rejects.toThrow(
      "big has git 2.30.2; 2.38 or newer is needed. Install a newer git there, or give the task another `place`.",
    )
  })

  test("room: where its disk is full, while files are sent and while its work is kept", async () => {
    const full = { code: 1, errors: "cat: write error: No space left on device\n" }
    await expect(began(answering(/bundle/, () => full))).rejects.toThrow(
      "The disk of big is full: cat: write error: No space left on device. Make room there, then try again.",
    )
    await began()
    const failed = answering(/write-tree/, () => ({
      code: 1,
      errors: "fatal: unable to write: No space left on device",
    }))
    await expect(home(failed)).rejects.toThrow("The disk of big is full")
    const quota = answering(/write-tree/, () => ({ code: 1, errors: "error: Disk quota exceeded" }))
    await expect(home(quota)).rejects.toThrow("The disk of big is full")
  })

  test("a folder that it may write to", async () => {
    const denied = answering(/git --version/, () => ({
      code: 1,
      out: Buffer.from("git version 2.39.5\n"),
      errors: "mkdir: cannot create directory '/x': Permission denied\n",
    }))
    await expect(began(denied)).rejects.toThrow("big: mkdir: cannot create directory '/x': Permission denied")
  })
})

describe("a host that sends what it should not", () => {
  beforeEach(async () => {
    user.write("a", "a").commit()
    user.git("branch", "secret")
  })

  test.each(["HEAD", "refs/heads/secret", "--all", "HEAD:a", "", "0000"])("a commit called %j", async (name) => {
    const child = await began()
    child.write("b", "b")
    const before = refs()
    const hostile = answering(/write-tree/, () => ({ out: Buffer.from(`${name}\n`) }))
    await expect(home(hostile)).rejects.toThrow("what came from big is no commit")
    expect(refs()).toEqual(before)
  })

  test("commits that it claims to have, under the names of branches here", async () => {
    const hostile = answering(/git --version/, ({ out }) => ({
      out: Buffer.concat([out, Buffer.from("HEAD\nrefs/heads/secret\n--all\n@{-1}\n")]),
    }))
    const child = await began(hostile)
    expect(child.read("a")).toBe("a")
  })

  test("a bundle with other refs than the task's: only that one comes", async () => {
    const child = await began()
    child.write("b", "b").git("add", "b")
    child.git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "theirs")
    const store = there().rooms.store
    const before = refs()
    const hostile = there(async (line, options) => {
      if (!/bundle create/.test(line)) return runThere(line, options)
      return runThere(
        `cd ${store} && for r in refs/heads/secret refs/heads/main refs/superagents/bg_other refs/tags/x; do git update-ref $r refs/work/${ID}; done && git bundle create -q - refs/work/${ID} refs/heads/secret refs/heads/main refs/superagents/bg_other refs/tags/x ^refs/have/${ID}`,
        options,
      )
    })
    const at = user.git("rev-parse", "secret")
    await home(hostile)
    expect(user.git("rev-parse", "secret")).toBe(at)
    expect(refs()).toEqual(before)
  })

  test("a bundle that is none, and one that leads to a repository here", async () => {
    const child = await began()
    child.write("b", "b")
    user.git("update-ref", `refs/work/${ID}`, "HEAD")
    for (const text of ["no bundle at all", `gitdir: ${join(user.top, ".git")}\n`, ""]) {
      const hostile = answering(/bundle create/, () => ({ out: Buffer.from(text) }))
      await expect(home(hostile)).rejects.toThrow("what came from big is no bundle of git")
    }
  })

  test("another commit in its bundle than it has told", async () => {
    const child = await began()
    child.write("b", "b")
    const hostile = answering(/write-tree/, () => ({ out: Buffer.from(`${"1".repeat(40)}\n`) }))
    await expect(home(hostile)).rejects.toThrow("what came from big is not what was committed there")
    expect(refs().filter((ref) => ref.includes("incoming"))).toEqual([])
  })

  test.each([
    ["a name that leads out", "../out"],
    ["git's own folder", ".git"],
    ["git's own folder in other letters", ".GIT"],
  ])("a tree with %s is refused", async (_what, name) => {
    const child = await began()
    const blob = child.git("hash-object", "-w", "a").trim()
    // Written as bytes: no git of today makes such a tree by itself.
    const entry = Buffer.concat([Buffer.from(`100644 ${name}\0`), Buffer.from(blob, "hex")])
    writeFileSync(join(far, "tree"), entry)
    const tree = child.git("hash-object", "-t", "tree", "-w", "--literally", join(far, "tree")).trim()
    const commit = child
      .git("-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", tree, "-p", "HEAD", "-m", "x")
      .trim()
    const hostile = there(async (line, options) => {
      if (!/write-tree/.test(line)) return runThere(line, options)
      await runThere(`git -C ${child.top} update-ref refs/work/${ID} ${commit}`)
      return { code: 0, out: Buffer.from(`${commit}\n`), errors: "" }
    })
    const before = refs()
    await expect(home(hostile)).rejects.toThrow()
    expect(refs()).toEqual(before)
    expect(existsSync(join(bench.folder, "out"))).toBe(false)
  })

  test("links that lead out, filters and hooks in what it made: a merge writes nowhere else and runs nothing", async () => {
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

  test("names that a terminal would act upon, and thousands of them", async () => {
    await began()
    const names = Array.from({ length: 5000 }, (_, at) => `\u001b[2Jnested ${at} ${"x".repeat(1000)}`)
    const hostile = answering(/write-tree/, ({ out }) => ({
      out: Buffer.concat([out, Buffer.from(names.join("\n"))]),
    }))
    const { nested = [] } = (await home(hostile)) ?? {}
    expect(nested.length).toBeLessThanOrEqual(100)
    expect(nested[0]).not.toContain("\u001b")
    expect(nested.every((name) => name.length <= 200)).toBe(true)
  })
})
