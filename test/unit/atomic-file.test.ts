import { lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { createOnce, replaceFile, replaceFileSync, writeDraft } from "../../src/lib/atomic-file.ts"

const newFile = () => join(mkdtempSync(join(tmpdir(), "atomic-")), "file.json")

describe("an atomically written file", () => {
  it.each([
    ["replace", replaceFile],
    ["replaceSync", replaceFileSync],
  ])("a file written by %s replaces a link and leaves the link's target unchanged", async (_, write) => {
    const file = newFile()
    const elsewhere = newFile()
    writeFileSync(elsewhere, "the user's own")
    symlinkSync(elsewhere, file)
    await write(file, "ours")
    expect(lstatSync(file).isFile()).toBe(true)
    expect(lstatSync(file).mode & 0o777).toBe(0o600)
    expect(readFileSync(file, "utf8")).toBe("ours")
    expect(readFileSync(elsewhere, "utf8")).toBe("the user's own")
    expect(readdirSync(join(file, ".."))).toEqual(["file.json"])
  })

  it.each([
    ["replace", replaceFile],
    ["replaceSync", async (file: string, text: string) => replaceFileSync(file, text)],
  ])("a file that %s cannot put in the place of a folder leaves no draft behind", async (_, write) => {
    const file = newFile()
    mkdirSync(join(file, "not empty"), { recursive: true })
    await expect(write(file, "ours")).rejects.toThrow(/directory/)
    expect(readdirSync(join(file, ".."))).toEqual(["file.json"])
  })

  it("a file whose content breaks off leaves no draft behind", async () => {
    const file = newFile()
    const content = (async function* () {
      yield Buffer.from("half")
      throw new Error("broken off")
    })()
    await expect(writeDraft(file, content)).rejects.toThrow("broken off")
    expect(readdirSync(join(file, ".."))).toEqual([])
  })

  it("a file that is created once is replaced by a later writer only if it is unusable", () => {
    const file = newFile()
    createOnce(file, "first", () => true)
    createOnce(file, "second", () => true)
    expect(readFileSync(file, "utf8")).toBe("first")
    createOnce(file, "third", () => false)
    expect(readFileSync(file, "utf8")).toBe("third")
    expect(readdirSync(join(file, ".."))).toEqual(["file.json"])
  })
})
