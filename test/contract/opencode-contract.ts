import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { driverOf, type World } from "./driver.ts"
import { promptContract } from "./prompts.ts"
import { questionContract } from "./questions.ts"
import { recordContract, sessionContract } from "./sessions.ts"
import { workContract } from "./work.ts"

/** What `OpencodeApi` promises, as tests that the fake and the real OpenCode both have to pass. */
export function opencodeContract(name: string, make: () => Promise<World>): void {
  describe(`the OpenCode port on ${name}`, () => {
    let world: World
    beforeAll(async () => {
      world = await make()
    })
    afterAll(() => world?.close())
    const driver = driverOf(() => world)

    sessionContract(driver)
    recordContract(driver)
    promptContract(driver)
    workContract(driver)
    questionContract(driver)

    test("the OpenCode port lists agents with a description of what each is for", async () => {
      const agents = await driver.opencode.agents()
      expect(agents).toContainEqual(expect.objectContaining({ name: "general", mode: "subagent" }))
      expect(agents.find((agent) => agent.name === "general")?.description).not.toBe("")
    })

    test("the OpenCode port lists models as provider/model", async () => {
      expect(await driver.opencode.models()).toEqual(expect.arrayContaining(["scripted/alpha", "scripted/beta"]))
    })

    test("the OpenCode port sends toasts and logs without printing anything", () => {
      expect(driver.opencode.toast({ title: "t", message: "m", variant: "info" })).toBeUndefined()
      expect(driver.opencode.log("info", "hello", { number: 1 })).toBeUndefined()
    })
  })
}
