import type { Plugin } from "@opencode-ai/plugin"
import { openApp } from "./app.ts"
import { groupKinds } from "./core/feature.ts"
import { FEATURES } from "./features/index.ts"
import { setup } from "./opencode/compatibility.ts"
import { connect } from "./opencode/connect.ts"
import { hooksOf } from "./opencode/hooks.ts"
import { optionsFrom } from "./opencode/user-config.ts"
import { optionsOf } from "./options/options.ts"
import { sayOptions } from "./runtime/record/notices.ts"

/** Entry point for OpenCode's server. */
const server: Plugin = async (input, given) => {
  const merged = optionsFrom(optionsOf(FEATURES), given)
  const { options } = merged
  const connection = connect(input, options, groupKinds(FEATURES))
  sayOptions(connection, merged)
  if (!options.enabled) return {}
  const app = await openApp(connection, options, FEATURES)
  return hooksOf(connection, app, options)
}

export default { id: "superagents", server, setup }
