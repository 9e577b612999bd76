import { z } from "zod"
import { CallError, messageOf } from "../core/errors.ts"
import { OpencodeError } from "../core/ports.ts"
import type { Caller } from "../runtime/launch/checks.ts"
import { parseArguments, shownArguments } from "./arguments.ts"

/** Caller of a running tool call. */
export type CallContext = Caller & {
  readonly agent?: string
}

export type ToolResult = {
  readonly title: string
  readonly output: string
  readonly metadata?: Record<string, unknown>
}

/** `args`: schema shown to the model. */
export type Tool = {
  readonly description: string
  readonly args: z.ZodRawShape
  execute(args: unknown, context: CallContext): Promise<ToolResult>
}

/** Wraps a tool: every error becomes a `CallError`, so that the model never reads a raw exception. */
export function defineTool<Shape extends z.ZodRawShape>(tool: {
  readonly description: string
  readonly args: Shape
  /** Checks what no argument shows by itself, in place of a schema of `args`. */
  readonly schema?: z.ZodObject<Shape>
  /** Arguments that an option turns off: not shown, but known for error messages. */
  readonly withheld?: readonly string[]
  /** Arguments that are the caller's own data, in which a `null` means something. */
  readonly asGiven?: readonly string[]
  /** Checks raw arguments before the schema does, for errors that matter most. */
  readonly refuse?: (given: Readonly<Record<string, unknown>>) => CallError | undefined
  readonly run: (args: z.infer<z.ZodObject<Shape>>, context: CallContext) => Promise<ToolResult> | ToolResult
}): Tool {
  // Shared by all calls: compiling a schema takes longer than the rest of a call.
  let { schema } = tool
  return {
    description: tool.description,
    args: shownArguments(
      Object.fromEntries(Object.entries(tool.args).filter(([name]) => !tool.withheld?.includes(name))),
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
          error instanceof OpencodeError
            ? `OpenCode did not do its part (${text}). Nothing was lost; try the call again.`
            : `The call failed unexpectedly (${text}). Try it again, or check with superagents_list.`,
        )
      }
    },
  }
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null
