import "../../../src/features/maps/items.ts"
import { expect, test } from "vitest"
import { type AgentAndModel, type HostCapabilities, modelOnHost } from "../../../src/features/hosts/remote-run.ts"
import { eventually } from "../../support/eventually.ts"
import { Rig } from "../../support/rig.ts"

// Loaded by the first map, in time that the clock of a test knows nothing of.

const OWN = { provider: "far", id: "own" }
const MISSING = { provider: "mock", id: "one" }
const BIG: HostCapabilities = {
  name: "big",
  agents: [
    { name: "general", mode: "subagent" },
    { name: "writer", mode: "subagent", model: OWN },
    { name: "title", mode: "primary", hidden: true },
  ],
  models: ["far/own", "far/spare/2"],
  spare: "",
}
const NONE = "big has no model mock/one. There are: far/own, far/spare/2."

const refusal = (wanted: AgentAndModel, offered = BIG) => {
  try {
    modelOnHost(wanted, offered)
  } catch (error) {
    return { code: (error as { code: string }).code, text: (error as Error).message }
  }
  throw new Error("was not refused")
}

test("a model that the call names is used on the host or refused, never replaced", () => {
  const named = { model: MISSING, isModelNamed: true }
  const spare = { ...BIG, spare: "far/own" }
  expect(refusal({ agent: "writer", ...named })).toEqual({ code: "place", text: NONE })
  expect(refusal({ agent: "general", ...named }, spare)).toEqual({ code: "place", text: NONE })
  expect(modelOnHost({ agent: "writer", model: OWN, isModelNamed: true }, BIG)).toBe(OWN)
})

test("a launch on a host without a named model uses the agent's model there or the option's", () => {
  expect(modelOnHost({ agent: "writer", model: MISSING }, BIG)).toBeUndefined()
  expect(modelOnHost({ agent: "general" }, BIG)).toBeUndefined()
  const spare = { provider: "far", id: "spare/2" }
  expect(modelOnHost({ agent: "general", model: MISSING }, { ...BIG, spare: "far/spare/2" })).toEqual(spare)
  expect(refusal({ agent: "general", model: MISSING })).toEqual({ code: "place", text: NONE })
  expect(refusal({ agent: "poet" }).text).toBe('big has no agent "poet". There are: general, writer.')
})

test("a new session knows whether the call named its model, also for members of a group", async () => {
  const rig = new Rig()
  const named: unknown[] = []
  const create = rig.opencode.createSession.bind(rig.opencode)
  rig.opencode.createSession = (input, draft) => {
    named.push(input.isModelNamed)
    return create(input, draft)
  }
  await rig.launch({ prompt: "one", model: "scripted/beta" })
  await rig.launch({ prompt: "two" })
  await rig.launch({ prompt: "{{item}}", each: ["a"], model: "scripted/beta" })
  // A map begins when its rows lie in a real file.
  await eventually(async () => {
    await rig.clock.advance(10)
    return named.length === 4
  })
  expect(named).toEqual([true, false, true, true])
})
