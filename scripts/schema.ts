import { writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { z } from "zod"
import { OptionsSchema } from "../src/options.ts"

export const SCHEMA_FILE = fileURLToPath(new URL("../docs/options.schema.json", import.meta.url))

/** The JSON schema of the options as a user writes them. */
export function optionsSchema() {
  const { $schema, ...schema } = z.toJSONSchema(OptionsSchema, { io: "input" })
  return { $schema, title: "Options of opencode-superagents", ...schema }
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  writeFileSync(SCHEMA_FILE, `${JSON.stringify(optionsSchema(), null, 2)}\n`)
