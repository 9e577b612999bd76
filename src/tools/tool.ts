import { z } from "zod"
import { CallError, messageOf } from "../core/errors.ts"
import { HostError } from "../core/ports.ts"
import type { Caller } from "../runtime/launch/checks.ts"
import { parseArguments, shownArguments } from "./arguments.ts"

/** What a running tool call knows of its surroundings. */
export type CallContext = Caller & {
  /** The calling agent's name. */
  readonly agent?: string
}

export type ToolResult = {
  readonly title: string
  readonly output: string
  readonly metadata?: Record<string, unknown>
}

/** A tool as the host takes it: `args` is the schema that the model sees. */
export type Tool = {
  readonly description: string
  readonly args: z.ZodRawShape
  execute(args: unknown, context: CallContext): Promise<ToolResult>
}

/**
 * A tool from its text, its arguments and what it does with them. Its errors are `CallError`s alone: what else goes
 * wrong is put into words, so that the model never reads a raw exception.
 */
export function defineTool<Shape extends z.ZodRawShape>(tool: {
  readonly description: string
  readonly args: Shape
  /** Arguments that an option turns off: not offered, and known for the sake of who gives one all the same. */
  readonly withheld?: readonly string[]
  /** Arguments of which an option turns a part off: as they are offered. */
  readonly narrowed?: z.ZodRawShape
  /** Arguments that are the caller's own data, in which a `null` means something. */
  readonly asGiven?: readonly string[]
  /** Said before anything else that is wrong with the arguments; they are as the model wrote them. */
  readonly refuse?: (given: Readonly<Record<string, unknown>>) => CallError | undefined
  readonly run: (args: z.infer<z.ZodObject<Shape>>, context: CallContext) => Promise<ToolResult> | ToolResult
}): Tool {
  // One for all calls: a schema compiles itself at its first parse, which takes longer than the rest of a call.
  let schema: z.ZodObject<Shape> | undefined
  return {
    description: tool.description,
    args: shownArguments(
      Object.fromEntries(
        Object.entries({ ...tool.args, ...tool.narrowed }).filter(([name]) => !tool.withheld?.includes(name)),
      ),
    ),
    async execute(input, context) {
      const refusal = isObject(input) ? tool.refuse?.(input) : undefined
      if (refusal) throw refusal
      schema ??= z.strictObject(tool.args)
      const args = parseArguments(schema, input, tool.asGiven)
      try {
        return await tool.run(args, context)
      } catch (error) {
        if (error instanceof CallError) throw error
        const text = messageOf(error)
        throw new CallError(
          error instanceof HostError
            ? `OpenCode did not do its part (${text}). Nothing was lost; try the call again.`
            : `The call failed unexpectedly (${text}). Try it again, or check with superagents_list.`,
        )
      }
    },
  }
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null
