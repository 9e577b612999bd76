import { spawn } from "node:child_process"
import { once } from "node:events"
import { readFileSync } from "node:fs"
import { describe, expect, test, vi } from "vitest"
import { LEASE_MS } from "../../src/core/ports.ts"
import {
  ownerNow,
  ownershipOf,
  registerInstance,
  startOf,
  unregisterInstance,
} from "../../src/runtime/record/identity.ts"

const other = ownerNow("other")
const expired = Date.now() - LEASE_MS - 1000

describe("a record's owner", () => {
  test("a record's owner is ours when it is this very instance", () => {
    const instance = registerInstance()
    expect(ownershipOf(ownerNow(instance), instance)).toBe("ours")
  })

  test("a record's owner is alive while another instance of this process exists, and dead afterwards", () => {
    const instance = registerInstance()
    expect(ownershipOf(ownerNow(instance), "me")).toBe("alive")
    unregisterInstance(instance)
    expect(ownershipOf(ownerNow(instance), "me")).toBe("dead")
  })

  test("a record's owner is alive while its process runs, and dead if its pid was reused", async () => {
    const child = spawn("sleep", ["60"])
    const pid = child.pid ?? 0
    const owner = { ...other, pid, started: startOf(pid), seenAt: expired }
    const reused = { ...owner, started: "1" }
    try {
      expect(ownershipOf(owner, "me")).toBe("alive")
      expect(ownershipOf(reused, "me")).toBe("dead")
    } finally {
      child.kill()
    }
    await once(child, "exit")
    expect(ownershipOf({ ...owner, seenAt: Date.now() }, "me")).toBe("dead")
  })

  test("a record's owner is dead if its process is a zombie, as in a container without an init", async () => {
    // What the shell has become takes no note of its child's end; so the child ends only then.
    const parent = spawn("sh", ["-c", "exec 3<&0; cat <&3 & echo $!; exec sleep 60"])
    try {
      const [line] = (await once(parent.stdout, "data")) as [Buffer]
      const pid = Number(line.toString())
      const started = startOf(pid)
      await vi.waitFor(() => expect(readFileSync(`/proc/${parent.pid}/comm`, "utf8")).toBe("sleep\n"))
      parent.stdin.end()
      await vi.waitFor(() => expect(readFileSync(`/proc/${pid}/stat`, "utf8")).toContain(") Z "))
      expect(ownershipOf({ ...other, pid, started }, "me")).toBe("dead")
    } finally {
      parent.kill()
    }
  })

  test("a record's owner is dead if an earlier process had our pid", () => {
    expect(ownershipOf({ ...other, started: "1" }, "me")).toBe("dead")
  })

  test("a record's owner is dead if the machine was rebooted since, even if its pid exists again", () => {
    expect(ownershipOf({ ...other, pid: 1, boot: "an earlier one" }, "me")).toBe("dead")
  })

  test.each([
    ["of another machine", { machine: "another", boot: "another" }],
    ["of another container on this one", { namespace: "pid:[1]" }],
    ["whose start nobody tells", { pid: process.ppid, started: "" }],
  ])("an owner %s counts as alive only as long as it renews its records", (_what, more) => {
    const owner = { ...other, pid: 999_999, ...more }
    expect(ownershipOf({ ...owner, seenAt: Date.now() - LEASE_MS / 2 }, "me")).toBe("alive")
    expect(ownershipOf({ ...owner, seenAt: expired }, "me")).toBe("dead")
  })
})
