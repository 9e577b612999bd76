import { writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { z } from "zod"
import { FEATURES } from "../src/features/index.ts"
import { optionsOf } from "../src/options/options.ts"
import { schemaOfAll } from "../src/options/spec.ts"

export const SCHEMA_FILE = fileURLToPath(new URL("../docs/options.schema.json", import.meta.url))
export const PAGE_FILE = fileURLToPath(new URL("../docs/options.md", import.meta.url))

const HEAD = `# Options

<!-- Written by \`npm run schema\` from src/options/options.ts and the features. -->

Options are the second element of the plugin's entry in \`opencode.json\`. Times are in milliseconds, money is in US
dollars, and 0 turns a limit off; \`checkRetries\` and \`schemaRetries\` are no limits of this kind: with 0 an agent is not
asked again. \`each.most\` and a host's \`unattended\` cannot be 0, and an agent's \`timeout: 0\` means \`taskTimeout\`. The plugin reports a wrong value or an unknown key in a toast and in the log, and uses the default in its
place, or yours where a project's value is wrong; the other options hold. A host with a wrong value is left out. The package has a
[JSON schema](options.schema.json) of them.

## Your options and a project's

OpenCode passes one entry to a plugin: the project's, where it has one. superagents also reads yours, from the global
configuration (\`~/.config/opencode\`, \`~/.opencode\`, \`OPENCODE_CONFIG\`, \`OPENCODE_CONFIG_DIR\`,
\`OPENCODE_CONFIG_CONTENT\`), and merges the two:

- An option that only one of the two sets has that value. Where both set it, the project's value holds.
- The stricter of two limits or budgets holds, whoever set it: \`max…\` (but not \`maxHistory\`), \`taskTimeout\`,
  \`stallTimeout\`, \`permissionTimeout\`, \`checkTimeout\`, \`checkRetries\`, \`schemaRetries\`, \`fork.maxTokens\`, \`each.ask\`,
  \`each.most\`, \`board.maxConcurrentRuns\`, the money of \`board.purse\`, and \`timeout\`, \`maxCost\` and \`maxConcurrent\` in
  \`agents\`. Of \`board.agents\` those hold that both name. The log says which of your values held.
- Only you can set \`hosts\`, \`worktree.dropUnmerged\`, a shorter \`worktree.keepDays\` than yours or the default, or a
  \`board.dir\` outside the project (absolute, or \`../…\`). The plugin ignores a project's; the toast and the log say so, and what to do if you want it.
- A project can turn on \`board\`, \`board.purse\`, \`web\` and \`worktree.setup\`, and \`enabled\` and
  \`allowModelOverride\` where yours are \`false\`. It can also widen or turn off a limit where you set none
  (\`maxDepth: 0\`, \`each.ask: 0\`, a budget). The plugin tells you of both: in a toast once for each project and change,
  and in the log at each start.

## Plain options
`

type Property = {
  readonly description?: string
  readonly default?: unknown
  readonly properties?: Properties
  /** What each name of its own has: one of these. */
  readonly additionalProperties?: { readonly anyOf?: readonly Property[] }
}
type Properties = Readonly<Record<string, Property>>

/** The JSON schema of the options as a user writes them. */
export function optionsSchema() {
  const { $schema, ...schema } = z.toJSONSchema(schemaOfAll(optionsOf(FEATURES)), { io: "input" })
  return { $schema, title: "Options of opencode-superagents", ...schema }
}

/** docs/options.md: one table for the plain options, one for each group. */
export function optionsPage(): string {
  const all = Object.entries(optionsSchema().properties as Properties)
  const inner = (property: Property) =>
    property.properties ?? property.additionalProperties?.anyOf?.find((each) => each.properties)?.properties
  const plain = all.filter(([, property]) => !inner(property))
  const groups = all.flatMap(([name, property]) => {
    const properties = inner(property)
    if (!properties) return []
    const { description = "" } = property
    const path = property.properties ? name : `${name}.<name>`
    const rows = Object.entries(properties).map(([key, each]) => row(`${path}.${key}`, each))
    return [`## \`${name}\`\n\n${description}\n\n${table(rows)}`]
  })
  return [HEAD, table(plain.map(([name, property]) => row(name, property))), ...groups].join("\n")
}

const row = (name: string, { description = "", default: value }: Property): string =>
  `| \`${name}\` | ${value === undefined ? "–" : `\`${JSON.stringify(value)}\``} | ${description.replaceAll("|", "\\|")} |`

const table = (rows: readonly string[]): string =>
  `${["| option | default | meaning |", "| --- | --- | --- |", ...rows].join("\n")}\n`

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(SCHEMA_FILE, `${JSON.stringify(optionsSchema(), null, 2)}\n`)
  writeFileSync(PAGE_FILE, optionsPage())
}
