/** What OpenCode hands to `tool.definition`: its types leave out the schema that a model is shown. */
export type Definition = { description: string; jsonSchema?: unknown }

const known = new WeakMap<object, object>()

/**
 * Takes out of a tool's schema what tells a model nothing, since every request pays for it: the name of the schema's
 * own language, and the list of an inner object's properties where that is empty.
 */
export function shorten(definition: Definition): void {
  const { jsonSchema } = definition
  if (!isObject(jsonSchema)) return
  const short = known.get(jsonSchema) ?? shortOf(jsonSchema)
  known.set(jsonSchema, short)
  definition.jsonSchema = short
}

/** The outermost list of properties stays: some providers take no tool without one. */
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
