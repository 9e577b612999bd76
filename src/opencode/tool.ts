import type { ToolContext, ToolDefinition } from "@opencode-ai/plugin"
import { CallError } from "../core/errors.ts"
import { isPlainObject } from "../options/spec.ts"
import type { Permit } from "../runtime/launch/checks.ts"
import type { Tool } from "../tools/tool.ts"

/** Argument of the hook `tool.definition`. OpenCode's type for it lacks the schema. */
export type Definition = { description: string; jsonSchema?: unknown }

const known = new WeakMap<object, object>()

/**
 * Removes parts of a tool's schema that models do not need, because every request pays for them: the schema dialect,
 * and empty property lists of inner objects.
 */
export function shorten(definition: Definition): void {
  const { jsonSchema } = definition
  if (!isPlainObject(jsonSchema)) return
  const short = known.get(jsonSchema) ?? shortOf(jsonSchema)
  known.set(jsonSchema, short)
  definition.jsonSchema = short
}

/** Shortens a schema. The outermost property list stays, because some providers require it. */
function shortOf({ $schema: _language, properties, ...rest }: Record<string, unknown>): object {
  return { ...rest, properties: isPlainObject(properties) ? mapped(properties, inner) : {} }
}

function inner(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(inner)
  if (!isPlainObject(schema)) return schema
  const { properties, ...rest } = schema
  const isEmpty = isPlainObject(properties) && Object.keys(properties).length === 0
  return mapped(isEmpty ? rest : schema, inner)
}

const mapped = (object: Record<string, unknown>, change: (value: unknown) => unknown): Record<string, unknown> =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]))

/** Separators of shell commands, quoted ones too: splitting too often is safe, too seldom is not. */
const BORDERS = /&&|\|\||[;&|\n()`{}]|\$\(|<\(|>\(/

/** Commands that a shell line may run, without duplicates. A line of several commands is itself the first entry. */
export function commandsIn(line: string): string[] {
  const parts = line.split(BORDERS).map((part) => part.trim())
  return [...new Set([line.trim(), ...parts.filter((part) => part !== "")])]
}

/** Permissions that a launch needs: the plugin's own, and the one of OpenCode's `task` tool. */
const OWN = "superagents_task"
const NATIVE = "task"

/**
 * Sets permissions of features to "ask", because OpenCode allows whatever no rule names. The user's own rules come later
 * and win.
 */
export function askFor(permissions: readonly string[], config: { permission?: unknown }): void {
  const { permission = {} } = config
  const theirs = typeof permission === "string" ? { "*": permission } : (permission as object)
  const asks = permissions.map((name) => [name, "ask"])
  config.permission = { ...Object.fromEntries(asks), ...theirs }
}

type ToolSurroundings = {
  /** Why no tool works with this OpenCode; undefined where the tools work. */
  readonly refusal: () => string | undefined
  /** Whether permission rules allow or deny OpenCode's `task` tool for single agents. */
  readonly picksAgents: (agent: string, sessionID: string) => Promise<boolean>
}

/**
 * Converts a tool for OpenCode. A launch asks for this plugin's permission with the agent's name, and for OpenCode's
 * `task` permission only where rules name single agents: users who replace the tool `task` by this plugin deny it
 * altogether.
 */
export function toOpencodeTool(tool: Tool, { refusal, picksAgents }: ToolSurroundings): ToolDefinition {
  return {
    description: tool.description,
    args: tool.args,
    execute: async (args: unknown, { sessionID, messageID, agent, abort, ask }: ToolContext) => {
      const reason = refusal()
      if (reason) throw new CallError(reason)
      return tool.execute(args, {
        sessionID,
        messageID,
        agent,
        abort,
        authorize: async (wanted, description) => {
          const question = { patterns: [wanted], always: ["*"], metadata: { description, subagent_type: wanted } }
          await ask({ permission: OWN, ...question })
          if (await picksAgents(agent, sessionID)) await ask({ permission: NATIVE, ...question })
        },
        permit: (what) => ask(questionFor(what)),
      })
    },
  }
}

/**
 * Asks for permissions as OpenCode's own tools do. A command is asked for as a whole and in its parts, so that a user
 * who allows one part allows no other part.
 */
function questionFor(what: Permit): Parameters<ToolContext["ask"]>[0] {
  if (what.kind === "run") {
    const { command } = what
    return { permission: "bash", patterns: commandsIn(command), always: [command], metadata: { command } }
  }
  if (what.kind === "read") return { permission: "read", patterns: [what.file], always: ["*"], metadata: {} }
  if (what.kind === "own") return { permission: what.permission, patterns: [what.what], always: ["*"], metadata: {} }
  const patterns = what.files.length > 0 ? [...what.files] : ["*"]
  return { permission: "edit", patterns, always: ["*"], metadata: { files: patterns } }
}
