import { expect, test, vi } from "vitest"
import type { Setup } from "../../../src/app.ts"
import { Hosts } from "../../../src/features/hosts/hosts.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { parseOptions } from "../../support/options.ts"
import { taskOf } from "../../support/tasks.ts"

/** What this process knows of a host's tasks that another process resumes, ends and leaves. */

const hosts = (clock = new FakeClock()) => {
  const { options } = parseOptions({ hosts: { big: { ssh: "big" } } })
  const connection = { directory: "/here", instance: "1", opencode: { log: () => {} }, writeUiMetadata: async () => {} }
  return new Hosts({ connection, options, clock } as unknown as Setup)
}

const task = taskOf({ id: "bg_a", place: { kind: "big", folder: "/here", merge: false } })

test("a task that another process has resumed on a host is read there again, and no longer once it was fetched", () => {
  const known = hosts()
  known.note(task, false, true)
  expect(known.remoteSessionOf("bg_a")).toMatchObject({ live: false, promptSent: false })
  known.note(task, true, true)
  expect(known.remoteSessionOf("bg_a")).toMatchObject({ live: true, promptSent: true })
  known.note(task, false, true)
  expect(known.remoteSessionOf("bg_a")).toMatchObject({ live: false })
})

test("an earlier record of this process's own task changes nothing of what is known of it", () => {
  const known = hosts()
  known.note(task, true, false)
  const remote = known.remoteSessionOf("bg_a")
  if (remote) known.markLocal(remote)
  known.note(task, true, false)
  expect(known.remoteSessionOf("bg_a")).toBe(remote)
  known.close()
})

test("what is owed to a host is settled once for all of its tasks that are taken over together", async () => {
  const clock = new FakeClock()
  const known = hosts(clock)
  const { link } = known.machine("big")
  vi.spyOn(link, "contact", "get").mockReturnValue({ cache: "/cache" } as never)
  vi.spyOn(link, "use").mockReturnValue()
  const settle = vi.spyOn(known.cleanup, "settle").mockResolvedValue()
  const found = vi.spyOn(known, "findAgain").mockResolvedValue()
  for (const id of ["bg_a", "bg_b", "bg_c"]) {
    known.note({ ...task, id, sessionID: `ses_${id}` }, true, true)
    known.rejoin("big", id)
    await clock.advance(10)
  }
  await clock.advance(1000)
  expect(found.mock.calls.map(([{ taskID }]) => taskID)).toEqual(["bg_a", "bg_b", "bg_c"])
  expect(settle.mock.calls).toEqual([["big"]])
  vi.restoreAllMocks()
  known.close()
})
