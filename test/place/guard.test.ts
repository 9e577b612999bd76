import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { hiddenIn } from "../../src/features/worktrees/ignored.ts"
import { requireCheckout } from "../../src/features/worktrees/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** Files that an agent may not change: a check stands on them, whether git is told to look at them or not. */

let bench: Bench

beforeEach(() => {
  bench = new Bench()
  bench.user
    .write("test/a.sh", "exit 1\n")
    .write(".gitignore", "__pycache__/\n*.log\n")
    .write("app/.gitignore", "out\n")
    .commit()
})
afterEach(() => bench.close())

async function guarded(work: string, globs: readonly string[] = ["test/**", "**/conftest.py"]) {
  const child = await bench.ready()
  child.sh(work)
  const { named } = await bench.places.shared.changedIn(ID, bench.user.top, globs)
  return named
}

describe("a guarded file reported as changed", () => {
  test.each<[string, string, string]>([
    ["was changed", "echo > test/a.sh", "test/a.sh"],
    [
      "was changed where git is told to look away",
      "git update-index --assume-unchanged test/a.sh; echo > test/a.sh",
      "test/a.sh",
    ],
    ["is new and hidden by a rule that is new", "echo conftest.py >> .gitignore; echo > conftest.py", "conftest.py"],
    ["is hidden by a file that hides itself", "echo '*' > app/.gitignore; echo > app/conftest.py", "app/conftest.py"],
    [
      "is hidden with all of its folder",
      "mkdir new; echo '*' > new/.gitignore; echo > new/conftest.py",
      "new/conftest.py",
    ],
    [
      "is hidden by the repository's own list",
      "echo conftest.py >> $(git rev-parse --git-path info/exclude); touch -d '+1 minute' $(git rev-parse --git-path info/exclude); echo > conftest.py",
      "conftest.py",
    ],
    [
      "was changed beside an index that git cannot read",
      "echo > test/a.sh; echo broken > $(git rev-parse --git-path index)",
      "test/a.sh",
    ],
    [
      "was changed and given an encoding that it is not in",
      "echo 'test/a.sh working-tree-encoding=UTF-16' > .gitattributes; echo 'exit 0' > test/a.sh",
      "test/a.sh",
    ],
    [
      "was removed where git is told that it is not checked out",
      "git update-index --skip-worktree test/a.sh; rm test/a.sh",
      "test/a.sh",
    ],
    ["is left out by a sparse checkout", "git sparse-checkout set --no-cone '/*' '!/test/'", "test/a.sh"],
    ["lies in a repository of its own", "git init -q test/new; echo > test/new/b.sh", "test/new/b.sh"],
    [
      "has a name of its own kind",
      "echo 'conf*' >> .gitignore; mkdir -- '-x\n\"'; echo > '-x\n\"/conftest.py'",
      '-x\n"/conftest.py',
    ],
  ])("a guarded file is reported as changed if it %s", async (_what, work, name) => {
    expect(await guarded(work)).toEqual([name])
  })

  test.each([".cargo/**", ".cargo", ".cargo/config.toml", "**/.cargo/*.toml"])(
    "a new hidden folder that hides itself is reported if a glob names it: %s",
    async (glob) => {
      const work = "mkdir .cargo; echo '*' > .cargo/.gitignore; echo > .cargo/config.toml"
      expect(await guarded(work, ["test/**", glob])).toContain(".cargo/config.toml")
    },
  )
})

describe("a file that is not reported", () => {
  test.each<[string, string]>([
    ["was ignored before", "mkdir test/__pycache__; echo > test/__pycache__/a.pyc; echo > test/run.log"],
    ["is ignored by an old rule in a file that was changed", "echo dist >> .gitignore; echo > test/run.log"],
    [
      "a runner of tests keeps for itself",
      "mkdir test/.cache; echo '*' > test/.cache/.gitignore; echo > test/.cache/x",
    ],
    ["no glob names", "git init -q other; echo > other/b.sh; echo hidden >> .gitignore; echo > hidden"],
  ])("nothing is reported about a file that %s", async (_what, work) => {
    expect(await guarded(work)).toEqual([])
  })

  test("nothing is reported about a program's own folder within a hidden folder that a glob names", async () => {
    const work = "mkdir -p .cargo/.cache; echo '*' > .cargo/.cache/.gitignore; echo > .cargo/.cache/x"
    expect(await guarded(work, [".cargo/**"])).toEqual([])
  })

  test.each([
    [
      "OpenCode's own packages",
      "mkdir .opencode; echo '*' > .opencode/.gitignore; echo > .opencode/package.json",
      ".opencode/**",
    ],
    [
      "what a program writes into a hidden folder that was there before",
      "mkdir .husky/_; echo '*' > .husky/_/.gitignore; echo > .husky/_/h",
      ".husky/**",
    ],
  ])("nothing is reported about %s", async (_what, work, glob) => {
    bench.user.write(".husky/pre-commit", "npm test\n")
    bench.user.git("add", ".husky")
    expect(await guarded(work, [glob])).toEqual([])
  })

  test("nothing is reported about a file that the user's own sparse checkout leaves out", async () => {
    bench.user.git("sparse-checkout", "set", "--no-cone", "/*", "!/test/")
    expect(await guarded("test ! -e test/a.sh; echo > more")).toEqual([])
  })

  test("OpenCode does not stand still while a monorepo's absent files are compared", async () => {
    const names = Array.from({ length: 50_000 }, (_, nth) => `test/many/${nth}`)
    const blob = bench.user.git("rev-parse", "HEAD:test/a.sh").trim()
    bench.user.write("entries", names.map((name) => `100644 ${blob}\t${name}\n`).join(""))
    bench.user.write("names", names.join("\n"))
    bench.user.sh("git update-index --index-info < entries; git update-index --skip-worktree --stdin < names")
    const checkout = await requireCheckout(bench.user.top)
    let [last, longest] = [performance.now(), 0]
    const timer = setInterval(() => {
      const now = performance.now()
      longest = Math.max(longest, now - last)
      last = now
    }, 5)
    try {
      expect(await hiddenIn(checkout, "HEAD", { nested: [], unreadable: [] }, ["test/many"], checkout)).toEqual([])
    } finally {
      clearInterval(timer)
    }
    longest = Math.max(longest, performance.now() - last)
    expect(longest).toBeLessThan(5000)
  })
})
