import { readFileSync } from "node:fs"
import { describe, expect, test } from "vitest"
import { complete, LOCK_FILE, type Lock, missingIn, platformOf, withHost } from "../../scripts/lock.ts"

const lock = JSON.parse(readFileSync(LOCK_FILE, "utf8")) as Lock

/** Entries that a registry listed have a checksum: what they say of themselves was not derived here. */
const listed = Object.entries(lock.packages).flatMap(([key, entry]) => {
  const name = key.slice(key.lastIndexOf("node_modules/") + "node_modules/".length)
  return entry.optional && "integrity" in entry && platformOf(name) ? [{ name, entry }] : []
})

describe("this project's package lock", () => {
  test("the package lock has entries for all platforms and names no registry (npm run lock)", () => {
    expect(missingIn(lock)).toEqual([])
    expect(withHost(lock)).toEqual([])
  })

  test("the package lock lists enough platform packages to verify the platform names", () => {
    expect(listed.length).toBeGreaterThan(80)
    expect(new Set(listed.map(({ entry }) => entry.os?.[0])).size).toBeGreaterThan(8)
  })

  test.each(listed)(
    "the lock entry of $name declares the platform that its name says",
    ({ name, entry: { os, cpu, libc } }) => {
      const { libc: named, ...platform } = platformOf(name) ?? {}
      expect({ os, cpu }).toEqual({ os: undefined, ...platform })
      // One that names no C library may declare one all the same: its siblings tell.
      if (named) expect(libc).toEqual(named)
      else expect(libc ?? ["glibc"]).toEqual(["glibc"])
    },
  )
})

describe("a platform package's name", () => {
  test.each([
    ["opencode-windows-x64-baseline", { os: ["win32"], cpu: ["x64"] }],
    ["opencode-linux-x64-baseline-musl", { os: ["linux"], cpu: ["x64"], libc: ["musl"] }],
    ["@opentui/core-linux-arm64-musl", { os: ["linux"], cpu: ["arm64"], libc: ["musl"] }],
    ["@oxc-parser/binding-linux-s390x-gnu", { os: ["linux"], cpu: ["s390x"], libc: ["glibc"] }],
    ["@oxc-parser/binding-linux-arm-musleabihf", { os: ["linux"], cpu: ["arm"] }],
    ["@oxc-parser/binding-android-arm-eabi", { os: ["android"], cpu: ["arm"] }],
    ["@oxc-parser/binding-win32-ia32-msvc", { os: ["win32"], cpu: ["ia32"] }],
    ["@oxc-parser/binding-wasm32-wasi", { cpu: ["wasm32"] }],
  ])("the platform is read from the package name %s", (name, platform) => expect(platformOf(name)).toEqual(platform))

  test.each(["fsevents", "linux-tools", "x64"])("the package name %s does not name a platform", (name) =>
    expect(platformOf(name)).toBeUndefined(),
  )
})

describe("the completion of a package lock", () => {
  const parent = (optionalDependencies: Record<string, string>) => ({
    version: "1.0.0",
    dev: true,
    optionalDependencies,
  })

  test("lock completion adds the packages that a parent names, and changes nothing in a complete lock", () => {
    const before = { packages: { "": {}, "node_modules/tool": parent({ "tool-darwin-arm64": "1.0.0" }) } }
    const after = complete(before)
    expect(after.packages["node_modules/tool-darwin-arm64"]).toEqual({
      version: "1.0.0",
      dev: true,
      optional: true,
      os: ["darwin"],
      cpu: ["arm64"],
    })
    expect(missingIn(after)).toEqual([])
    expect(complete(after)).toEqual(after)
  })

  test("lock completion puts two versions of a package where each parent finds its own", () => {
    const after = complete({
      packages: {
        "node_modules/tool": parent({ "tool-linux-x64-musl": "1.0.0" }),
        "node_modules/user/node_modules/tool": parent({ "tool-linux-x64-musl": "2.0.0" }),
        "node_modules/other/node_modules/tool": parent({ "tool-linux-x64-musl": "1.0.0" }),
      },
    })
    const versions = Object.entries(after.packages).flatMap(([key, { version }]) =>
      key.endsWith("tool-linux-x64-musl") ? [[key, version]] : [],
    )
    expect(versions).toEqual([
      ["node_modules/tool-linux-x64-musl", "1.0.0"],
      ["node_modules/user/node_modules/tool-linux-x64-musl", "2.0.0"],
    ])
    expect(missingIn(after)).toEqual([])
  })

  test("lock completion takes the C library of a plain Linux package from its sibling", () => {
    const names = ["cli-linux-x64", "cli-linux-arm64", "cli-linux-x64-musl"]
    const after = complete({
      packages: {
        "node_modules/cli": parent(Object.fromEntries(names.map((name) => [name, "1.0.0"]))),
        "node_modules/cli-linux-x64": { version: "1.0.0", libc: ["glibc"], optional: true },
      },
    })
    expect(after.packages["node_modules/cli-linux-arm64"]?.libc).toEqual(["glibc"])
    expect(after.packages["node_modules/cli-linux-x64-musl"]?.libc).toEqual(["musl"])
  })

  test.each([
    ["a name without a platform", { "tool-fast": "1.0.0" }],
    ["a range", { "tool-linux-x64": "^1.0.0" }],
  ])("lock completion fails instead of guessing from %s", (_what, optional) => {
    expect(() => complete({ packages: { "node_modules/tool": parent(optional) } })).toThrow(/by hand/)
  })

  test("packages that say from which registry they came are listed", () => {
    const resolved = "https://registry.example/a.tgz"
    expect(withHost({ packages: { "node_modules/a": { resolved }, "node_modules/b": {} } })).toEqual(["node_modules/a"])
  })
})
