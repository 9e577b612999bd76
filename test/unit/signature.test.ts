import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import { lossText } from "../../src/runtime/record/loss.ts"
import { installationKey, installationSigner, signerOf } from "../../src/runtime/record/signature.ts"

let folder: string
const file = () => join(folder, "record.key")

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "superagents-key-"))
})
afterEach(() => {
  vi.unstubAllEnvs()
  rmSync(folder, { recursive: true, force: true })
})

describe("the installation's key", () => {
  test("is made once, is the user's alone, and is found again", () => {
    const key = installationKey(folder)
    expect(key).toHaveLength(32)
    expect(installationKey(folder)).toEqual(key)
    expect(statSync(file()).mode & 0o777).toBe(0o600)
    expect(readdirSync(folder)).toEqual(["record.key"])
  })

  test("lies beside OpenCode's own data", () => {
    vi.stubEnv("XDG_DATA_HOME", folder)
    const key = installationKey()
    expect(readFileSync(join(folder, "opencode", "superagents", "record.key"), "utf8")).toBe(
      Buffer.from(key).toString("hex"),
    )
  })

  test("is not replaced where the file holds none: whoever has the old key can still put it back", () => {
    writeFileSync(file(), "not a key", { mode: 0o600 })
    expect(() => installationKey(folder)).toThrow(
      `${file()} holds no key. Put the old one back, or remove the file to have a new key made`,
    )
    expect(readFileSync(file(), "utf8")).toBe("not a key")
    expect(readdirSync(folder)).toEqual(["record.key"])
  })

  test("that cannot be used leaves a signer that names the problem, and signs for its own process alone", () => {
    const { problem: none, ...usable } = installationSigner(folder)
    expect(none).toBeUndefined()
    chmodSync(file(), 0o644)
    const { problem, ...unusable } = installationSigner(folder)
    expect(problem).toContain(`chmod 600 ${file()}`)
    expect(unusable.isSigned(1, unusable.sign(1))).toBe(true)
    expect(unusable.isSigned(1, usable.sign(1))).toBe(false)
    expect(installationSigner(folder).isSigned(1, unusable.sign(1))).toBe(false)
  })

  test("cannot be had where there is no folder for it, and the caller hears of it", () => {
    writeFileSync(join(folder, "taken"), "")
    expect(() => installationKey(join(folder, "taken"))).toThrow()
  })

  test.skipIf(process.platform === "win32").each([0o666, 0o620, 0o604])(
    "is refused where others may read or write it (mode %o), with what mends that",
    (mode) => {
      const key = installationKey(folder)
      chmodSync(file(), mode)
      expect(() => installationKey(folder)).toThrow(`(mode 0${mode.toString(8)})`)
      expect(() => installationKey(folder)).toThrow(`chmod 600 ${file()}`)
      expect(readFileSync(file(), "utf8")).toBe(Buffer.from(key).toString("hex"))
      chmodSync(file(), 0o600)
      expect(installationKey(folder)).toEqual(key)
    },
  )

  test.skipIf(process.getuid?.() === 0)("cannot be had where it may not be read", () => {
    installationKey(folder)
    chmodSync(file(), 0)
    expect(() => installationKey(folder)).toThrow()
  })
})

describe("tasks that are not believed", () => {
  const one = { sessionID: "ses_a", cost: 1, changedAt: 1 }

  test("are told with the cause that is known, and with what still counts", () => {
    expect(lossText([], "/k", true)).toBeUndefined()
    expect(lossText([one], "/k", true)).toBe(
      "1 background task of the last days cannot be listed: this installation's key did not sign the records. /k was missing, and a new key was made: put the old one back if you have it. What they cost in the last 24 hours still counts for maxCostPerDay.",
    )
    expect(lossText([one, { ...one, sessionID: "ses_b" }], "/k", false)).toMatch(
      /^2 background tasks .* Either \/k was replaced, or the records were changed or imported\./,
    )
  })
})

describe("a signature", () => {
  const signer = signerOf(new Uint8Array(32).fill(1))

  test("holds for the value, in any order of its keys, and for no other", () => {
    const signature = signer.sign({ a: 1, b: [{ c: 2, d: undefined }] })
    expect(signer.isSigned({ b: [{ c: 2 }], a: 1 }, signature)).toBe(true)
    expect(signer.isSigned({ b: [{ c: 3 }], a: 1 }, signature)).toBe(false)
    expect(signer.isSigned({ a: 1 }, signature)).toBe(false)
  })

  test("of another key, cut short, or no text at all, is none", () => {
    const signature = signer.sign({ a: 1 })
    expect(signerOf(new Uint8Array(32)).isSigned({ a: 1 }, signature)).toBe(false)
    for (const wrong of [signature.slice(0, -2), "", undefined, 7]) expect(signer.isSigned({ a: 1 }, wrong)).toBe(false)
  })
})
