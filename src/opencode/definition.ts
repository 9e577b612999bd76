/** Argument of `tool.definition`: OpenCode's types omit the schema. */
export type Definition = { description: string; jsonSchema?: unknown }

const known = new WeakMap<object, object>()

/**
 * Removes useless parts of a tool's schema, which every request pays for: the schema dialect, and empty property lists
 * of inner objects.
 */
export function shorten(definition: Definition): void {
  const { jsonSchema } = definition
  if (!isObject(jsonSchema)) return
  const short = known.get(jsonSchema) ?? shortOf(jsonSchema)
  known.set(jsonSchema, short)
  definition.jsonSchema = short
}

/** The outermost property list stays: some providers require one. */
function shortOf({ $schema: _language, properties, ...rest }: Record<string, unknown>): object {
  return { ...rest, properties: isObject(properties) ? mapped(properties, inner) : {} }
}

function inner(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(inner)
  if (!isObject(schema)) return schema
  const { properties, ...rest } = schema
  const isEmpty = isObject(properties) && Object.keys(properties).length === 0
  return mapped(isEmpty ? rest : schema, inner)
}

const mapped = (object: Record<string, unknown>, change: (value: unknown) => unknown): Record<string, unknown> =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]))

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)
