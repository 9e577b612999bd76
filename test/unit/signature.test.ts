import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import { installationKey, installationSigner, signerOf } from "../../src/runtime/record/identity.ts"
import { lossText } from "../../src/runtime/record/notices.ts"

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
  test("the installation's key is made once, readable only by the user, and found again", () => {
    const key = installationKey(folder)
    expect(key).toHaveLength(32)
    expect(installationKey(folder)).toEqual(key)
    expect(statSync(file()).mode & 0o777).toBe(0o600)
    expect(readdirSync(folder)).toEqual(["record.key"])
  })

  test("the installation's key is stored next to OpenCode's own data", () => {
    vi.stubEnv("XDG_DATA_HOME", folder)
    const key = installationKey()
    expect(readFileSync(join(folder, "opencode", "superagents", "record.key"), "utf8")).toBe(
      Buffer.from(key).toString("hex"),
    )
  })

  test("a key file without a valid key is not replaced, so that a user can restore it", () => {
    writeFileSync(file(), "not a key", { mode: 0o600 })
    expect(() => installationKey(folder)).toThrow(
      `${file()} holds no key. Put the old one back, or remove the file to have a new key made`,
    )
    expect(readFileSync(file(), "utf8")).toBe("not a key")
    expect(readdirSync(folder)).toEqual(["record.key"])
  })

  test("a signer without a usable key names the problem and signs only for its own process", () => {
    const { problem: none, ...usable } = installationSigner(folder)
    expect(none).toBeUndefined()
    chmodSync(file(), 0o644)
    const { problem, ...unusable } = installationSigner(folder)
    expect(problem).toContain(`chmod 600 ${file()}`)
    expect(unusable.isSigned(1, unusable.sign(1))).toBe(true)
    expect(unusable.isSigned(1, usable.sign(1))).toBe(false)
    expect(installationSigner(folder).isSigned(1, unusable.sign(1))).toBe(false)
  })

  test("reading the installation's key fails with an error when its folder cannot be created", () => {
    writeFileSync(join(folder, "taken"), "")
    expect(() => installationKey(join(folder, "taken"))).toThrow()
  })

  test.skipIf(process.platform === "win32").each([0o666, 0o620, 0o604])(
    "a key that others may read or write (mode %o) is refused, and the error names the fix",
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

  test.skipIf(process.getuid?.() === 0)("reading the installation's key fails when its file is not readable", () => {
    installationKey(folder)
    chmodSync(file(), 0)
    expect(() => installationKey(folder)).toThrow()
  })
})

describe("tasks with an unknown signature", () => {
  const one = { sessionID: "ses_a", cost: 1, changedAt: 1 }

  test("tasks with an unknown signature are reported with the known cause and the costs that still count", () => {
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

  test("a signature is valid for its value in any key order, and for no other value", () => {
    const signature = signer.sign({ a: 1, b: [{ c: 2, d: undefined }] })
    expect(signer.isSigned({ b: [{ c: 2 }], a: 1 }, signature)).toBe(true)
    expect(signer.isSigned({ b: [{ c: 3 }], a: 1 }, signature)).toBe(false)
    expect(signer.isSigned({ a: 1 }, signature)).toBe(false)
  })

  test("a signature by another key, a shortened one, and an empty one are all invalid", () => {
    const signature = signer.sign({ a: 1 })
    expect(signerOf(new Uint8Array(32)).isSigned({ a: 1 }, signature)).toBe(false)
    for (const wrong of [signature.slice(0, -2), "", undefined, 7]) expect(signer.isSigned({ a: 1 }, wrong)).toBe(false)
  })
})
