import type { Plugin } from "@opencode-ai/plugin"
import { openApp } from "./app.ts"
import { connect } from "./host/opencode/connect.ts"
import { hooksOf } from "./host/opencode/hooks.ts"
import { optionsFrom } from "./host/opencode/user-config.ts"
import { setup } from "./host/opencode/version.ts"
import { sayOptions } from "./option-notices.ts"

/** The plugin's entry for OpenCode's server: which host, which options, and no more. */
const server: Plugin = async (input, given) => {
  const met = optionsFrom(given)
  const { options } = met
  const connection = connect(input, options)
  sayOptions(connection, met)
  if (!options.enabled) return {}
  return hooksOf(connection, await openApp(connection, options), options)
}

export default { id: "superagents", server, setup }
