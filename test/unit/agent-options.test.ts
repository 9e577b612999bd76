import { describe, expect, test } from "vitest"
import { isListed } from "../../src/core/ports.ts"
import type { Place } from "../../src/runtime/places/place.ts"
import { toolsFor } from "../../src/tools/index.ts"
import { FakeMachine } from "../support/fake-machine.ts"
import { DEFAULTS, meet, parseOptions } from "../support/options.ts"
import { Rig } from "../support/rig.ts"

const PLACES = {
  capture: async () => {},
  enter: async () => ({ directory: "/place", preface: "" }),
  archive: async () => ({ files: [], added: 0, removed: 0, submodules: [], unsaved: [] }),
} as never as Place

const rigWith = (general: object, options = {}) => {
  const rig = new Rig({ options: { agents: { general }, ...options }, worktrees: async () => PLACES })
  rig.opencode.move = async () => {}
  return rig
}

describe("the options of an agent", () => {
  test("the options of an agent apply to a launch and a resume that do not say otherwise", async () => {
    const rig = rigWith({ timeout: 60_000, maxCost: 0.5, place: "worktree", model: "scripted/beta" })
    const { id } = await rig.launch()
    const task = await rig.ended(id)
    expect(task.outcome?.reason?.text).toBe(undefined)
    expect(task).toMatchObject({
      model: { provider: "scripted", id: "beta" },
      place: { kind: "worktree" },
      run: { timeout: 60_000, budget: { max: 0.5 } },
    })
    const { task: again } = await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    expect(again.run).toMatchObject({ timeout: 60_000, budget: { max: 0.5 } })
  })

  test("the arguments of a call override the options of its agent", async () => {
    const rig = rigWith({ timeout: 60_000, maxCost: 0.5, place: "worktree", model: "scripted/beta" })
    const request = { timeout: 90_000, maxCost: 2, place: "here", model: "scripted/alpha" } as const
    const { model, place, run } = await rig.launch(request)
    expect([model?.id, place, run.timeout, run.budget?.max]).toEqual(["alpha", undefined, 90_000, 2])
  })

  test("the options of an agent do not affect other agents, whatever their names", async () => {
    const rig = rigWith({ timeout: 60_000 })
    rig.opencode.agentList = [...rig.opencode.agentList, { name: "toString", description: "", mode: "all" }]
    const { run } = await rig.launch({ agent: "toString" })
    expect(run.timeout).toBe(DEFAULTS.taskTimeout)
  })

  test("the timeout option of an agent cannot exceed the general task timeout", async () => {
    expect((await rigWith({ timeout: 60_000 }, { taskTimeout: 5000 }).launch()).run.timeout).toBe(5000)
    expect((await rigWith({ timeout: 60_000 }, { taskTimeout: 0 }).launch()).run.timeout).toBe(60_000)
  })

  test("the model option of an agent applies on another machine, which knows the model itself", async () => {
    const kind = { names: ["big"], outlives: true } as const
    const agents = { general: { model: "elsewhere/small#low", place: "big" } }
    const options = { agents, hosts: { big: { ssh: "big" } }, allowModelOverride: false }
    const rig = new Rig({ options, worktrees: async () => new FakeMachine() as never as Place, kind })
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { hang: true }))
    expect((await rig.launch()).model).toEqual({ provider: "elsewhere", id: "small", variant: "low" })
  })

  test("a launch names the option when an agent's configured model does not exist", async () => {
    await expect(rigWith({ model: "scripted/none" }).launch()).rejects.toThrow(
      /No model "scripted\/none" \(option agents\.general\.model, /,
    )
  })

  test("the maxConcurrent option of an agent limits its running tasks over all sessions", async () => {
    const rig = rigWith({ maxConcurrent: 1 })
    rig.onPrompt("FIND", { hang: true })
    const first = await rig.launch()
    const second = await rig.launch({}, rig.openParent())
    const other = await rig.launch({ agent: "plan" })
    expect([first, second, other].map(({ run }) => run.startedAt !== undefined)).toEqual([true, false, true])
    await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
    await rig.clock.until(() => rig.task(second.id, second.parentID).run.startedAt !== undefined)
  })

  test("the options of an agent apply to a whole fork, whether or not the call names the agent", async () => {
    const rig = new Rig({ options: { agents: { build: { timeout: 60_000, maxCost: 0.5, place: "worktree" } } } })
    for (const agent of ["build", undefined]) {
      const { run, place, fork } = await rig.launch({ fork: "whole", agent })
      expect([run.timeout, run.budget?.max, place, fork?.whole]).toEqual([60_000, 0.5, undefined, true])
    }
  })

  test("a whole fork with merge is refused because it works in its parent's folder", async () => {
    const rig = new Rig({ options: { agents: { build: { place: "worktree" } } } })
    const { superagents_task: tool } = toolsFor(rig.manager, rig.options)
    const args = { description: "d", prompt: "p", agent: "build", fork: "whole", merge: true }
    await expect(tool?.execute(args, rig.caller)).rejects.toThrow(/goes with `place: "worktree"`/)
    expect(rig.manager.list(rig.parent)).toEqual([])
  })

  test("a call with merge and no place is valid when its agent's option is a worktree", async () => {
    const rig = rigWith({ place: "worktree" })
    const { superagents_task: tool } = toolsFor(rig.manager, rig.options)
    const args = { description: "d", prompt: "p", agent: "general", merge: true }
    expect((await tool?.execute(args, rig.caller))?.output).toContain("merged by itself when completed")
    await expect(tool?.execute({ ...args, agent: "plan" }, rig.caller)).rejects.toThrow(/goes with `place: "worktree"`/)
  })

  test("a call with guard and no place is valid when its agent's option is a worktree", async () => {
    const rig = rigWith({ place: "worktree" })
    const { superagents_task: tool } = toolsFor(rig.manager, rig.options)
    const args = { description: "d", prompt: "p", agent: "general", check: "true", guard: ["test/**"] }
    await tool?.execute(args, rig.caller)
    expect(rig.manager.list(rig.parent).map(({ task }) => task.place?.kind)).toEqual(["worktree"])
    await expect(tool?.execute({ ...args, agent: "plan" }, rig.caller)).rejects.toThrow(/`guard` needs `place/)
  })

  test("an agent whose option maxCost is 0 has no budget, and is told of none", async () => {
    const rig = rigWith({ maxCost: 0 })
    const { id, sessionID } = await rig.launch({ agent: "general" })
    expect(rig.task(id).run.budget).toBeUndefined()
    await rig.ended(id)
    expect(JSON.stringify(rig.opencode.stored(sessionID).messages)).not.toContain("You may spend")
  })

  test("tries have worktrees of their own although their agent's option is the parent's folder", async () => {
    const rig = rigWith({ place: "here" })
    const { superagents_task: tool } = toolsFor(rig.manager, rig.options)
    const args = { description: "d", prompt: "p", agent: "general", tries: 2, check: "true", merge: true }
    await tool?.execute(args, rig.caller)
    expect(rig.manager.list(rig.parent).map(({ task }) => task.place?.kind)).toEqual(["worktree"])
  })
})

test("of the user's and the project's options for an agent, the stricter limits win, else the project's", () => {
  const own = { agents: { explore: { timeout: 1000, maxCost: 0.5, place: "here" }, plan: { maxConcurrent: 2 } } }
  const project = { agents: { explore: { timeout: 5000, maxCost: 0.2, place: "worktree" }, toString: { timeout: 1 } } }
  const { options, held, problems } = meet(own, project)
  expect(problems).toEqual([])
  expect(options.agents).toEqual({
    explore: { timeout: 1000, maxCost: 0.2, place: "worktree" },
    plan: { maxConcurrent: 2 },
    toString: { timeout: 1 },
  })
  expect(held.join()).toContain('agents: {"explore":{"timeout":1000,"maxCost":0.2,"place":"worktree"}')
})

test("an unknown key in an agent's options is reported, and none of the options are used", () => {
  const { options, problems } = parseOptions({ agents: { explore: { budget: 1 } } })
  expect([options.agents, problems]).toEqual([{}, [expect.stringContaining('Option "agents" is')]])
})

test("a hidden agent is listed for models unless it is a primary agent", () => {
  expect(isListed({ mode: "subagent", hidden: false } as never)).toBe(true)
  expect(isListed({ mode: "subagent", hidden: true } as never)).toBe(true)
  expect(isListed({ mode: "primary", hidden: true } as never)).toBe(false)
})
