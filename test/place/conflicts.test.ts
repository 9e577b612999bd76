import { readFileSync } from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { type Repository, text } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** What the user and an agent changed in ways that do not fit together: neither is lost, and nobody decides unasked. */

let bench: Bench
let user: Repository

beforeEach(() => {
  bench = new Bench()
  user = bench.user
})
afterEach(() => bench.close())

const merge = () => bench.places.merge(ID, user.top)
const again = (work: (child: Repository) => void = () => {}) => bench.worked(work, { again: true })
const OPEN = `<<<<<<< the original folder (${ID})`
const CLOSE = `>>>>>>> your work (${ID})`

/** Both change; the merge is a conflict in these files, and nothing of the user's is touched. */
async function conflicting(theirs: (child: Repository) => void, mine: () => void, files: readonly string[]) {
  await bench.worked(theirs)
  mine()
  const before = user.state()
  expect(await merge()).toEqual({ kind: "conflict", files })
  expect(user.state()).toEqual(before)
}

/** A run that does nothing about it: the conflict stays one, and the user's files as they are. */
async function staysUnsolved() {
  await again()
  const before = user.state()
  expect(await merge()).toMatchObject({ kind: "conflict" })
  expect(user.state()).toEqual(before)
}

describe("the user's side in a merge", () => {
  const settings = () => {
    user.git("config", "merge.ours.driver", "true")
    user.write(".gitattributes", "config merge=ours\n").write("config", text()).write("a", text()).commit()
  }
  const mine = () => user.write("config", text({ 20: "mine" })).write("a", text({ 5: "mine" }))

  test("merge=ours keeps the user's edit in other files after the agent has solved a conflict", async () => {
    settings()
    const theirs = (child: Repository) => child.write("config", text({ 1: "theirs" })).write("a", text({ 5: "theirs" }))
    await conflicting(theirs, mine, ["a"])
    await again((child) => {
      expect(child.read("config")).toBe(text({ 20: "mine" }))
      child.write("a", text({ 5: "both" }))
    })
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
    expect([user.read("config"), user.read("a")]).toEqual([text({ 20: "mine" }), text({ 5: "both" })])
  })

  test("merge=ours keeps the user's edit where the parent's state is brought in for a check", async () => {
    settings()
    const child = await bench.ready()
    child.write("config", text({ 1: "theirs" })).write("a", text({ 30: "theirs" }))
    mine()
    expect(await bench.places.bringIn(ID, user.top)).toMatchObject({ kind: "merged" })
    expect(child.read("config")).toBe(text({ 20: "mine" }))
    await bench.places.archive(ID, user.top)
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
    expect(user.read("config")).toBe(text({ 20: "mine" }))
  })

  test("merge=ours keeps the user's edit when the task is resumed", async () => {
    settings()
    await bench.worked((child) => child.write("config", text({ 1: "theirs" })))
    user.write("config", text({ 20: "mine" }))
    const { directory } = await bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0, bringIn: true })
    expect(readFileSync(join(directory, "config"), "utf8")).toBe(text({ 20: "mine" }))
    await bench.places.archive(ID, user.top)
    expect(await merge()).toEqual({ kind: "nothing" })
    expect(user.read("config")).toBe(text({ 20: "mine" }))
  })
})

describe("conflict marks", () => {
  const inOne = async (before = text(), theirs = text({ 5: "theirs" }), mine = text({ 5: "mine" })) => {
    user.write("a", before).commit()
    await conflicting(
      (child) => child.write("a", theirs),
      () => user.write("a", mine),
      ["a"],
    )
  }

  test("conflict marks name the two sides, not commits", async () => {
    await inOne()
    await again((child) => {
      expect(child.read("a")).toContain(`${OPEN}\nmine\n=======\ntheirs\n${CLOSE}\n`)
      expect(child.read("a")).not.toMatch(/[0-9a-f]{40}/)
    })
  })

  test("conflict marks contain the common start if the user's git is set to show it", async () => {
    user.git("config", "merge.conflictStyle", "diff3")
    await inOne()
    await again((child) => {
      expect(child.read("a")).toContain(`\nmine\n||||||| what both began with\nline 5\n=======\ntheirs\n`)
    })
  })

  test("conflict marks are short enough to be read, whatever the repository sets", async () => {
    user.write(".gitattributes", "a conflict-marker-size=100000\n")
    await inOne()
    await again((child) => {
      expect(child.read("a").length).toBeLessThan(1000)
      expect(child.read("a")).toContain(`${OPEN}\n`)
    })
    expect(await merge()).toEqual({ kind: "conflict", files: ["a"] })
    await again((child) => child.write("a", text({ 5: "both" })))
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
  })

  test.each([
    ["the first", /^(=======|>>>>>>> .*)\n/gm],
    ["the middle one", /^(<<<<<<<|>>>>>>>) .*\n/gm],
    ["the last", /^(<<<<<<< .*|=======)\n/gm],
  ])("conflict marks of which only %s is left still count as a conflict", async (_which, gone) => {
    await inOne()
    await again((child) => child.write("a", child.read("a").replaceAll(gone, "")))
    expect(await merge()).toEqual({ kind: "conflict", files: ["a"] })
    expect(user.read("a")).toBe(text({ 5: "mine" }))
    await again((child) => child.write("a", text({ 5: "both" })))
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
  })

  test("lines that look like conflict marks but belong to the file are not a conflict", async () => {
    const title = "Title\n=======\n\n"
    await inOne(title + text(), title + text({ 5: "theirs" }), `${title}Part\n=======\n${text({ 5: "mine" })}`)
    const solved = `${title}Part\n=======\n${text({ 5: "both" })}`
    await again((child) => child.write("a", solved))
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
    expect(user.read("a")).toBe(solved)
  })

  test("conflict marks that were moved to another file still count as a conflict", async () => {
    await inOne()
    await again((child) => child.write("sub/b", child.read("a")).remove("a"))
    expect(await merge()).toEqual({ kind: "conflict", files: ["sub/b"] })
    expect(user.has("sub/b")).toBe(false)
  })

  test("conflict marks leave the other bytes of a text unchanged", async () => {
    const latin1 = (line: string) => Buffer.from(text({ 0: "caf\u00e9", 5: line }), "latin1")
    user.write("a", latin1("before")).commit()
    await conflicting(
      (child) => child.write("a", latin1("theirs")),
      () => user.write("a", latin1("mine")),
      ["a"],
    )
    await again((child) => expect(readFileSync(join(child.top, "a")).subarray(0, 5)).toEqual(latin1("").subarray(0, 5)))
  })
})

describe("a conflict without marks from git", () => {
  test("a file deleted by the user and edited by the agent is a conflict with marks until decided", async () => {
    user.write("a", "before\n").commit()
    await conflicting(
      (child) => child.write("a", "theirs\n"),
      () => user.remove("a"),
      ["a"],
    )
    await staysUnsolved()
    await again((child) => {
      expect(child.read("a")).toBe(`${OPEN} [has no such file]\n=======\ntheirs\n${CLOSE}\n`)
      child.write("a", "theirs\n")
    })
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
    expect(user.read("a")).toBe("theirs\n")
  })

  test("a conflict about a file that the user deleted is solved when the agent deletes it too", async () => {
    user.write("a", "before\n").write("b", "b\n").commit()
    await conflicting(
      (child) => child.write("a", "theirs\n").write("b", "theirs\n"),
      () => user.remove("a"),
      ["a"],
    )
    await again((child) => child.remove("a"))
    expect(await merge()).toMatchObject({ kind: "merged", files: ["b"] })
    expect(user.has("a")).toBe(false)
  })

  test("a file edited by the user and deleted by the agent is a conflict with marks until decided", async () => {
    user.write("a", "before\n").commit()
    await conflicting(
      (child) => child.remove("a"),
      () => user.write("a", "mine"),
      ["a"],
    )
    await staysUnsolved()
    await again((child) => {
      expect(child.read("a")).toBe(`${OPEN}\nmine\n=======\n${CLOSE} [has no such file]\n`)
      child.remove("a")
    })
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
    expect(user.has("a")).toBe(false)
  })

  test("a user's untracked file against an agent's folder is a conflict with marks until decided", async () => {
    user.write("b", "b\n").commit()
    await conflicting(
      (child) => child.write("x/inner", "theirs\n"),
      () => user.write("x", "mine\n"),
      ["x"],
    )
    await staysUnsolved()
    expect(user.read("x")).toBe("mine\n")
    await again((child) => {
      expect(Object.keys(child.files())).toEqual(["b", "x/inner", "x~original-folder"])
      expect(child.read("x~original-folder")).toContain("\nmine\n=======\n")
      child.remove("x").remove("x~original-folder").write("x", "both\n")
    })
    expect(await merge()).toMatchObject({ kind: "merged", files: ["x"] })
    expect(user.files()).toMatchObject({ x: `644 ${Buffer.from("both\n").toString("base64")}` })
    expect(Object.keys(user.files())).toEqual(["b", "x"])
  })

  test("a user's folder against an agent's file is a conflict with marks until decided", async () => {
    user.write("b", "b\n").commit()
    await conflicting(
      (child) => child.write("x", "theirs\n"),
      () => user.write("x/inner", "mine\n"),
      ["x"],
    )
    await staysUnsolved()
    await again((child) => {
      expect(Object.keys(child.files())).toEqual(["b", "x/inner", "x~your-work"])
      child.remove("x~your-work").write("x/theirs", "theirs\n")
    })
    expect(await merge()).toMatchObject({ kind: "merged", files: ["x/theirs"] })
    expect(Object.keys(user.files())).toEqual(["b", "x/inner", "x/theirs"])
  })

  test("a file that user and agent have renamed differently is a conflict with marks until decided", async () => {
    user.write("old", text()).commit()
    await conflicting(
      (child) => void child.git("mv", "old", "theirs"),
      () => void user.git("mv", "old", "mine"),
      ["mine", "old", "theirs"],
    )
    await staysUnsolved()
    expect(Object.keys(user.files())).toEqual(["mine"])
    await again((child) => child.remove("theirs").write("mine", text({ 1: "both" })))
    expect(await merge()).toMatchObject({ kind: "merged", files: ["mine"] })
    expect(user.files()).toEqual({ mine: `644 ${Buffer.from(text({ 1: "both" })).toString("base64")}` })
  })

  test("a binary file changed by both is a conflict, and either side can be taken as the marks say", async () => {
    const [before, mine, theirs] = [Buffer.from([0, 1]), Buffer.from([0, 2]), Buffer.from([0, 3])]
    user.write("it's a file", before).write("b", "b\n").commit()
    await conflicting(
      (child) => child.write("it's a file", theirs).write("b", "theirs\n"),
      () => user.write("it's a file", mine),
      ["it's a file"],
    )
    await staysUnsolved()
    const take = (child: Repository, nth: number) => {
      const [command = ""] = [...child.read("it's a file").matchAll(/to take it: (git .*)\]/g)][nth] ?? []
      child.sh(command.replace(/^to take it: (.*)\]$/, "$1"))
    }
    await again((child) => {
      const marked = child.read("it's a file")
      take(child, 1)
      expect(readFileSync(join(child.top, "it's a file"))).toEqual(theirs)
      child.write("it's a file", marked)
      take(child, 0)
    })
    expect(await merge()).toMatchObject({ kind: "merged", files: ["b"] })
    expect(readFileSync(join(user.top, "it's a file"))).toEqual(mine)
  })

  test("a link that both have redirected, or a link against a file, is a conflict with marks", async () => {
    user.write("a", "a\n").write("b", "b\n").link("link", "a").commit()
    await conflicting(
      (child) => child.remove("link").link("link", "b").write("new", "theirs\n"),
      () => user.remove("link").link("link", "elsewhere").link("new", "a"),
      ["link", "new"],
    )
    await staysUnsolved()
    await again((child) => {
      expect(child.read("link")).toMatch(/the original folder.*\[has a link; .*\n=======\n.*your work.*\[has a link; /)
      expect(child.read("new")).toMatch(/the original folder.*\[has a link; .*\n=======\n.*your work.*\[has a file/)
      child.remove("link").link("link", "b").remove("new").write("new", "both\n")
    })
    expect(await merge()).toMatchObject({ kind: "merged", files: ["link", "new"] })
    expect([user.files().link, user.read("new")]).toEqual(["-> b", "both\n"])
  })

  test("a text that a user's git filter converts gets conflict marks that stay until it is decided", async () => {
    user.git("config", "filter.large.clean", "base64")
    user.git("config", "filter.large.smudge", "base64 -d")
    user.write(".gitattributes", "*.large filter=large\n").write("a.large", text()).write("gone.large", text()).commit()
    await conflicting(
      (child) => child.write("a.large", text({ 1: "theirs" })).write("gone.large", text({ 1: "theirs" })),
      () => user.write("a.large", text({ 1: "mine" })).remove("gone.large"),
      ["a.large", "gone.large"],
    )
    await staysUnsolved()
    await again((child) => {
      expect(child.read("a.large")).toMatch(/^<<<<<<< the original folder .*to take it/)
      child.write("a.large", `=======\n${text({ 1: "both" })}`).remove("gone.large")
    })
    expect(await merge()).toEqual({ kind: "conflict", files: ["a.large"] })
    await again((child) => child.write("a.large", text({ 1: "both" })))
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a.large"] })
    expect(user.read("a.large")).toBe(text({ 1: "both" }))
    expect(user.has("gone.large")).toBe(false)
  })

  test("a text whose git filter rejects conflict marks is still a conflict until it is decided", async () => {
    // Fails on a text that begins with a mark.
    user.git("config", "filter.strict.clean", "t=$(mktemp); cat > $t; ! grep -q '^<<<' $t && cat $t")
    user.git("config", "filter.strict.smudge", "cat")
    user.git("config", "filter.strict.required", "true")
    user.write(".gitattributes", "a filter=strict\n").write("a", text()).commit()
    await conflicting(
      (child) => child.write("a", text({ 1: "theirs" })),
      () => user.write("a", text({ 1: "mine" })),
      ["a"],
    )
    await staysUnsolved()
    await again((child) => {
      expect(child.read("a")).toBe(text({ 1: "mine" }))
      child.write("a", text({ 1: "both" }))
    })
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
  })
})
