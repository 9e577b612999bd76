import { execFileSync } from "node:child_process"
import { lstatSync, mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { expect, test } from "vitest"
import { jsonFile, jsonNames, readJson, writeJson } from "../../src/lib/atomic-file.ts"

const folder = () => join(mkdtempSync(join(tmpdir(), "leases-")), "marks")

test("a lease is written for its user alone, together with its folder, and is found by its name", async () => {
  const marks = folder()
  const file = jsonFile(marks, "one")
  expect(await jsonNames(marks)).toEqual([])
  writeJson(file, { by: "me" })
  expect([lstatSync(marks).mode & 0o777, lstatSync(file).mode & 0o777]).toEqual([0o700, 0o600])
  writeFileSync(`${file}.0a1b2c.tmp`, '{"by":')
  expect(await jsonNames(marks)).toEqual(["one"])
  expect(readJson(file)).toEqual({ by: "me" })
})

test.skipIf(process.platform === "win32")(
  "a lease that is broken, too large, a link or a pipe is read as missing",
  () => {
    const marks = folder()
    const files = ["missing", "broken", "large", "link", "pipe", "folder"].map((name) => jsonFile(marks, name))
    const [, broken = "", large = "", link = "", pipe = "", inner = ""] = files
    writeJson(large, "x".repeat(1_000_000))
    writeFileSync(broken, '{"by":')
    const elsewhere = join(dirname(marks), "elsewhere")
    writeFileSync(elsewhere, "{}")
    symlinkSync(elsewhere, link)
    execFileSync("mkfifo", [pipe])
    mkdirSync(inner)
    expect(files.map(readJson)).toEqual(files.map(() => undefined))
  },
)
