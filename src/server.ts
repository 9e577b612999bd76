import type { Plugin } from "@opencode-ai/plugin"
import { openApp } from "./app.ts"
import { connect } from "./host/opencode/connect.ts"
import { hooksOf } from "./host/opencode/hooks.ts"
import { setup } from "./host/opencode/version.ts"
import { parseOptions } from "./options.ts"

const CHECK_OPTIONS = "superagents: check your options"

/** The plugin's entry for OpenCode's server: which host, which options, and no more. */
const server: Plugin = async (input, given) => {
  const { options, problems } = parseOptions(given)
  const connection = connect(input, options)
  for (const message of problems) connection.warn({ title: CHECK_OPTIONS, message })
  if (!options.enabled) return {}
  return hooksOf(connection, await openApp(connection, options), options)
}

export default { id: "superagents", server, setup }
