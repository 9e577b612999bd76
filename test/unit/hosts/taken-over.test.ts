import { expect, test } from "vitest"
import type { Setup } from "../../../src/app.ts"
import { Hosts } from "../../../src/features/hosts/hosts.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { parseOptions } from "../../support/options.ts"
import { taskOf } from "../../support/tasks.ts"

/** What this process knows of a host's tasks that another process resumes, ends and leaves. */

const hosts = () => {
  const { options } = parseOptions({ hosts: { big: { ssh: "big" } } })
  const connection = { directory: "/here", instance: "1", opencode: { log: () => {} }, writeUiMetadata: async () => {} }
  return new Hosts({ connection, options, clock: new FakeClock() } as unknown as Setup)
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
