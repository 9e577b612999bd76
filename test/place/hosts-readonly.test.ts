import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import {
  commitScript,
  folderIn,
  lookScript,
  quoted,
  receiveScript,
  removeScript,
  roomsIn,
} from "../../src/place/host/scripts.ts"
import { runIn } from "../support/far-shell.ts"

/** Folders on a host that do not let themselves be removed, as Go's store of modules makes them; and its own git filters. */

const ID = "bg_aaaaaaaa"
/** Nothing is read-only for root. */
const NOBODY = process.getuid?.() === 0 ? 65_534 : undefined

let far: string
beforeEach(() => {
  far = mkdtempSync(join(tmpdir(), "superagents-readonly-"))
  chmodSync(far, 0o777)
})
afterEach(() => rmSync(far, { recursive: true, force: true }))

const run = async (line: string) => {
  const { code, out, errors } = await runIn(far, line, {}, {}, NOBODY)
  expect(code, errors).toBe(0)
  return Buffer.from(out).toString().trim()
}

const rooms = () => roomsIn(join(far, "cache"), "key")
const folder = () => folderIn(rooms(), ID)

/** A folder of one commit with these files, by a shell's lines. */
const received = async (...lines: string[]) => {
  await run(lookScript(rooms()))
  const made = join(far, "made")
  const git = `git -C ${quoted(made)} -c user.name=x -c user.email=x@x`
  await run(
    [`git init -q ${quoted(made)}; cd ${quoted(made)}`, ...lines, `${git} add -A; ${git} commit -qm x`].join("\n"),
  )
  const commit = await run(`${git} rev-parse HEAD; git -C ${quoted(rooms().store)} fetch -q ${quoted(made)} HEAD`)
  await run(receiveScript({ rooms: rooms(), taskID: ID, commit, shallow: [] }))
  return commit
}

test("a folder with parts that are read-only is removed, and made anew", async () => {
  const commit = await received("echo a >a")
  const closed = `cd ${quoted(folder())} && mkdir -p mod/inner && echo x >mod/inner/x && chmod 500 mod/inner && chmod 0 mod`
  await run(closed)
  await run(receiveScript({ rooms: rooms(), taskID: ID, commit, shallow: [] }))
  expect(existsSync(join(folder(), "mod"))).toBe(false)
  await run(closed)
  await run(removeScript(rooms(), ID))
  expect([existsSync(folder()), existsSync(`${folder()}.gone`)]).toEqual([false, false])
})

test("git LFS of a host does nothing: what it keeps is a pointer there, and what its agent writes comes home as it is", async () => {
  writeFileSync(
    join(far, ".gitconfig"),
    '[filter "lfs"]\n\tclean = echo POINTER\n\tsmudge = false\n\tprocess = false\n\trequired = true\n',
  )
  const committed = "GIT_CONFIG_GLOBAL=/dev/null; export GIT_CONFIG_GLOBAL"
  await received(committed, "echo '*.big filter=lfs' >.gitattributes", "echo pointer >a.big")
  expect(readFileSync(join(folder(), "a.big"), "utf8")).toBe("pointer\n")
  await run(`cd ${quoted(folder())} && echo bytes >b.big`)
  const [commit] = (await run(commitScript(rooms(), ID))).split("\n")
  expect(await run(`git -C ${quoted(rooms().store)} cat-file -p ${commit}:b.big`)).toBe("bytes")
})
