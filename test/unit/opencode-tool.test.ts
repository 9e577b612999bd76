import type { ToolContext } from "@opencode-ai/plugin"
import { describe, expect, test } from "vitest"
import { picksAgent } from "../../src/opencode/convert.ts"
import { toOpencodeTool } from "../../src/opencode/hooks.ts"
import type { Tool } from "../../src/tools/tool.ts"

/** Launches an agent through a tool, on an OpenCode that refuses these permissions, and tells what was asked for. */
const launched = async (picks: boolean, refused: readonly string[] = [], why?: string) => {
  const asked: string[] = []
  const tool: Tool = {
    description: "",
    args: {},
    async execute(_args, context) {
      await context.authorize?.("general", "find it")
      return { title: "", output: "launched" }
    },
  }
  const surroundings = { refusal: () => why, picksAgents: async () => picks }
  const context = {
    ...{ sessionID: "ses_1", messageID: "msg_1", agent: "build" },
    async ask({ permission, patterns }: { permission: string; patterns: string[] }) {
      asked.push(`${permission} ${patterns.join()}`)
      if (refused.includes(permission)) throw new Error(`no ${permission}`)
    },
  } as unknown as ToolContext
  const outcome = await toOpencodeTool(tool, surroundings)
    .execute({}, context)
    .then(
      () => "launched",
      (error: Error) => error.message,
    )
  return { asked, outcome }
}

describe("the permissions of a launch", () => {
  test("a launch asks for permission for superagents_task with the agent's name", async () => {
    expect(await launched(false)).toEqual({ asked: ["superagents_task general"], outcome: "launched" })
    expect((await launched(false, ["task"])).outcome).toBe("launched")
    expect((await launched(false, ["superagents_task"])).outcome).toBe("no superagents_task")
  })

  test("a launch also asks for permission for OpenCode's task tool where rules name single agents", async () => {
    expect((await launched(true)).asked).toEqual(["superagents_task general", "task general"])
    expect((await launched(true, ["task"])).outcome).toBe("no task")
  })

  test("a launch is refused with the reason when the plugin's tools do not work on this OpenCode", async () => {
    expect(await launched(false, [], "too old")).toEqual({ asked: [], outcome: "too old" })
  })
})

test("a rule names single agents only if it is for the task tool and not for all agents", () => {
  expect(picksAgent({ permission: "task", pattern: "explore" })).toBe(true)
  expect(picksAgent({ permission: "task", pattern: "*" })).toBe(false)
  expect(picksAgent({ permission: "bash", pattern: "rm *" })).toBe(false)
})
