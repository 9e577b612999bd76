import { spawnSync } from "node:child_process"
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterEach, beforeEach, expect, test } from "vitest"
import { type FilesOrder, folderIn, hostRepositoryFolders } from "../../src/features/hosts/orders.ts"
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
  const { code, out, errors } = await runIn(far, line, NOBODY)
  expect(code, errors).toBe(0)
  return Buffer.from(out).toString().trim()
}

const STEP = fileURLToPath(new URL("../support/fixtures/files-step.ts", import.meta.url))
type Asked = FilesOrder extends infer Order ? (Order extends FilesOrder ? Omit<Order, "folders"> : never) : never
/** What an order comes to, carried out by nobody where the tests are root's. */
const ask = (order: Asked) => {
  const given = JSON.stringify({ home: far, order: { ...order, folders: rooms() } })
  const { stdout, stderr } = spawnSync(process.execPath, ["--import", "tsx", STEP, given], {
    encoding: "utf8",
    env: { PATH: process.env.PATH, HOME: far },
    uid: NOBODY,
    gid: NOBODY,
  })
  expect(stderr).toBe("")
  const { out, problem } = JSON.parse(stdout)
  expect(problem).toBeUndefined()
  return out
}

const rooms = () => hostRepositoryFolders(join(far, "cache"), "key")
const folder = () => folderIn(rooms(), ID)
const receive = (commit: string) => ask({ do: "receive", taskID: ID, commit, shallow: [] })

/** A folder of one commit with these files, by a shell's lines. */
const received = async (...lines: string[]) => {
  ask({ do: "look" })
  const made = join(far, "made")
  const git = `git -C '${made}' -c user.name=x -c user.email=x@x`
  await run([`git init -q '${made}'; cd '${made}'`, ...lines, `${git} add -A; ${git} commit -qm x`].join("\n"))
  const commit = await run(`${git} rev-parse HEAD; git -C '${rooms().store}' fetch -q '${made}' HEAD`)
  receive(commit)
  return commit
}

test("a host folder with read-only parts is removed and created again", async () => {
  const commit = await received("echo a >a")
  const closed = `cd '${folder()}' && mkdir -p mod/inner && echo x >mod/inner/x && chmod 500 mod/inner && chmod 0 mod`
  await run(closed)
  receive(commit)
  expect(existsSync(join(folder(), "mod"))).toBe(false)
  await run(closed)
  ask({ do: "remove", taskID: ID })
  expect([existsSync(folder()), existsSync(join(rooms().root, "made", ID))]).toEqual([false, false])
})

test("an unreadable file on a host is reported and does not stop the other files from being committed", async () => {
  await received("echo a >a; echo b >b")
  await run(`cd '${folder()}' && echo changed >a && echo changed >b && echo s >secret && chmod 0 secret b`)
  const { commit, unsaved } = JSON.parse(ask({ do: "commit", taskID: ID }))
  expect(unsaved.toSorted()).toEqual(["b", "secret"])
  expect(await run(`git -C '${rooms().store}' cat-file -p ${commit}:a`)).toBe("changed")
  // As git last saw it.
  expect(await run(`git -C '${rooms().store}' cat-file -p ${commit}:b`)).toBe("b")
})

test("Git LFS filters of a host are ignored: pointers stay pointers and new files are committed unchanged", async () => {
  writeFileSync(
    join(far, ".gitconfig"),
    '[filter "lfs"]\n\tclean = echo POINTER\n\tsmudge = false\n\tprocess = false\n\trequired = true\n',
  )
  const committed = "GIT_CONFIG_GLOBAL=/dev/null; export GIT_CONFIG_GLOBAL"
  await received(committed, "echo '*.big filter=lfs' >.gitattributes", "echo pointer >a.big")
  expect(readFileSync(join(folder(), "a.big"), "utf8")).toBe("pointer\n")
  await run(`cd '${folder()}' && echo bytes >b.big`)
  const { commit } = JSON.parse(ask({ do: "commit", taskID: ID }))
  expect(await run(`git -C '${rooms().store}' cat-file -p ${commit}:b.big`)).toBe("bytes")
})
