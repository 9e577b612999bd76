import { afterEach, describe, expect, test, vi } from "vitest"
import type { OpencodeLayer, Setup } from "../../../src/app.ts"
import type { Activity, Prompt } from "../../../src/core/ports.ts"
import type { Task } from "../../../src/core/task.ts"
import { HostConnection } from "../../../src/features/hosts/connection.ts"
import { Hosts } from "../../../src/features/hosts/hosts.ts"
import { openHosts } from "../../../src/features/hosts/open.ts"
import type { NewRemoteSession } from "../../../src/features/hosts/remote-session.ts"
import type { Place } from "../../../src/runtime/places/place.ts"
import { continuation } from "../../../src/runtime/sessions.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { FakeMachine } from "../../support/fake-machine.ts"
import { parseOptions } from "../../support/options.ts"
import { Rig } from "../../support/rig.ts"
import { taskOf } from "../../support/tasks.ts"

// No files are sent: only sessions matter here.
vi.mock("../../../src/features/hosts/files.ts", async (original) => ({ ...(await original<object>()), send: vi.fn() }))
vi.mock("../../../src/features/worktrees/repository.ts", async (original) => ({
  ...(await original<object>()),
  requireCheckout: async () => ({ commonDir: "/here/.git" }),
  readRef: async () => "commit",
}))

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

test("a later run that is parked before it begins is nowhere on its host, until another process has begun it", () => {
  const known = hosts()
  const parked = { by: "breaker", model: "m", text: "", at: 1, until: 2 }
  const later = (more: object) => ({ ...task, run: { ...task.run, generation: 1, startedAt: 1, ...more } }) as Task
  known.note(later({ parked }), true, true)
  expect(known.remoteSessionOf("bg_a")).toMatchObject({ live: true, promptSent: false })
  known.note(later({}), true, true)
  expect(known.remoteSessionOf("bg_a")).toMatchObject({ live: true, promptSent: true })
})

test.each([
  ["an earlier run's is the last", "msg_earlier", 1, false],
  ["it is the last", "msg_prompt", 2, false],
  ["a later one follows", "msg_later", 3, true],
])(
  "a run goes on after a pause with its prompt unless a message follows it: %s",
  async (_case, id, createdAt, goesOn) => {
    const opencode = { lastMessage: async () => ({ id, role: "user", createdAt }), messageID: () => "msg_new" }
    const run = { ...task.run, promptID: "msg_prompt", createdAt: 2 }
    const said = await continuation({ opencode, clock: new FakeClock() } as never, { ...task, run }, "")
    expect(said !== undefined).toBe(goesOn)
  },
)

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

describe("a task on a host that never answers, after a restart", () => {
  afterEach(() => vi.restoreAllMocks())

  const options = { maxConcurrentTasks: 1, hosts: { big: { ssh: "big" } } }
  const FAR = { prompt: "FAR", place: "big", model: "scripted/alpha" }
  const LIMIT = "Rate limit exceeded. Try again in 600s"

  /** A process before the restart, for which the host is OpenCode itself. */
  const start = () => {
    const kind = { names: ["big"], outlives: true } as const
    const rig = new Rig({ options, worktrees: async () => new FakeMachine() as never as Place, kind })
    rig.opencode.hooks.inRequest = () => undefined
    rig.opencode.hooks.holdRequest = () => undefined
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { hang: true }))
    return rig
  }

  /** The process after it. `users`: for which tasks a connection was asked for. */
  const restart = async (first: Rig) => {
    first.crash()
    const users: string[] = []
    vi.spyOn(HostConnection.prototype, "use").mockImplementation((user) => void users.push(user))
    let layer: OpencodeLayer | undefined
    const rig = new Rig({
      options,
      share: { clock: first.clock, database: first.opencode.database },
      elsewhere: {
        kind: () => (layer as OpencodeLayer).kind,
        over(opencode, clock) {
          const writeUiMetadata = async () => {}
          const connection = { opencode, userActions: {}, instance: "2", directory: "/here", writeUiMetadata }
          const kinds = [{ names: ["worktree"], open: async () => new FakeMachine() }]
          const setup = { connection, options: parseOptions(options).options, clock, kinds }
          layer = openHosts(setup as never as Setup)
          return layer.opencode
        },
      },
    })
    Object.assign(rig, { parent: first.parent })
    await rig.manager.recover()
    await rig.manager.ready(first.parent)
    await rig.clock.advance(5000)
    const task = (id: string) => rig.task(id, first.parent)
    const caller = first.caller
    return { rig, users, task, caller, phase: (id: string) => rig.view(id, first.parent).phase }
  }

  const refused = async (rig: Rig) => {
    const { id, sessionID } = await rig.launch(FAR)
    await rig.clock.advance(1000)
    const retry: Activity = { type: "retry", attempt: 1, message: LIMIT }
    rig.opencode.activity = async () => new Map([[sessionID, retry]])
    await rig.clock.advance(5000)
    return id
  }

  test("a queued one has ended as interrupted, and nothing of it is looked for there", async () => {
    const first = start()
    await first.launch({ prompt: "HERE" })
    const { id } = await first.launch(FAR)
    await first.clock.advance(1000)
    expect(first.view(id).phase).toBe("queued")
    const { task, users } = await restart(first)
    expect(task(id)).toMatchObject({ status: "error", outcome: { reason: { code: "interrupted" } } })
    expect(task(id).outcome?.reason?.text).toMatch(/before it began/)
    expect(task(id).outcome?.note).toBeUndefined()
    expect(users).toEqual([])
  })

  test("a parked one stays parked and can be cancelled, and its host is connected", async () => {
    const first = start()
    const id = await refused(first)
    expect(first.view(id).phase).toMatch(/^parked until/)
    const { rig, task, users, caller, phase } = await restart(first)
    expect(phase(id)).toMatch(/^parked until/)
    expect(users).toEqual([id])
    await rig.manager.cancel({ type: "task", reference: id }, caller)
    expect(task(id).status).toBe("cancelled")
  })

  /** One was parked before it had begun, in a process whose parent may not edit. */
  const unbegun = async () => {
    const first = start()
    first.opencode.stored(first.parent).rules = [{ permission: "edit", pattern: "*", action: "deny" }]
    await refused(first)
    const { id } = await first.launch(FAR)
    await first.clock.advance(1000)
    expect(first.view(id).phase).toMatch(/^parked until/)
    const restarted = await restart(first)
    expect(restarted.phase(id)).toMatch(/^parked until/)
    expect(restarted.users).not.toContain(id)
    return { id, ...restarted }
  }

  /** The host answers from now on, and has these models. Returns the sessions and prompts that it gets. */
  const reach = (models: readonly string[]) => {
    const contact = { skew: 0, cache: "/cache", server: { id: "1", version: "1.18.33" } }
    vi.spyOn(HostConnection.prototype, "contact", "get").mockReturnValue(contact)
    vi.spyOn(HostConnection.prototype, "reached").mockResolvedValue(contact)
    const created: NewRemoteSession[] = []
    const prompts: Prompt[] = []
    const server = {
      sessionOf: async () => undefined,
      agents: async () => [{ name: "general", mode: "subagent", model: { provider: "far", id: "own" } }],
      models: async () => models,
      createSession: async (session: NewRemoteSession) => {
        created.push(session)
        return { id: "ses_far", skew: 0 }
      },
      prompt: async (prompt: Prompt) => void prompts.push(prompt),
      lastMessage: async () => undefined,
      messagesSince: async () => [],
      folder: async () => ({ activity: new Map([["ses_far", { type: "busy" }]]), asks: [] }),
      abort: async () => {},
    }
    const real = Hosts.prototype.machine
    vi.spyOn(Hosts.prototype, "machine").mockImplementation(function (this: Hosts, name) {
      return { ...real.call(this, name), server } as never
    })
    return { created, prompts }
  }

  test("one that was parked before it had begun begins like a new one: with its refusals and its model", async () => {
    const { rig, id, task } = await unbegun()
    const { created, prompts } = reach(["scripted/alpha", "far/own"])
    await rig.clock.until(() => prompts.some(({ sessionID }) => sessionID === "ses_far"))
    const [begun] = created.filter(({ taskID }) => taskID === id)
    expect(begun?.model).toEqual({ provider: "scripted", id: "alpha" })
    expect(begun?.rules).toContainEqual({ permission: "edit", pattern: "*", action: "deny" })
    expect(begun?.rules).toContainEqual({ permission: "question", pattern: "*", action: "deny" })
    expect(task(id).status).toBe("running")
  })

  test("one that was parked before it had begun fails rather than begin with another model", async () => {
    const { rig, id, task } = await unbegun()
    const { created } = reach(["far/own"])
    await rig.clock.until(() => task(id).status !== "running")
    expect(created).toEqual([])
    expect(task(id).outcome?.reason?.text).toMatch(/^big has no model scripted\/alpha\./)
  })

  test("one that is parked before it begins is recorded as parked at once, and nothing of it is looked for there", async () => {
    const first = start()
    await refused(first)
    const { rig, users, phase } = await restart(first)
    const { id } = await rig.launch(FAR)
    await rig.clock.advance(1000)
    expect(phase(id)).toMatch(/^parked until/)
    expect([users.includes(id), rig.errors()]).toEqual([false, []])
    expect((await restart(rig)).phase(id)).toMatch(/^parked until/)
  })

  test("one that was parked before it had begun stays parked, and can be cancelled", async () => {
    const { rig, id, task, caller } = await unbegun()
    await rig.manager.cancel({ type: "task", reference: id }, caller)
    expect(task(id)).toMatchObject({ status: "cancelled", outcome: { work: {} } })
    expect(task(id).outcome?.note).toBeUndefined()
  })
})
