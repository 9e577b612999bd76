import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Runtime } from "../../../core/feature.ts"
import { LAUNCHING_TOOL } from "../../../opencode/convert.ts"
import type { RequestPrefixes } from "./beginnings.ts"
import { OpencodeForks } from "./forks.ts"
import type { DefaultTools } from "./history.ts"

export function openForks(
  { opencode, models, options, connection }: Runtime,
  prefixes: RequestPrefixes | undefined,
): OpencodeForks {
  const { client, directory } = connection as { readonly client: OpencodeClient; readonly directory: string }
  const usual: DefaultTools = options.nativeTask ? {} : { [LAUNCHING_TOOL]: false }
  return new OpencodeForks({ client, sessions: opencode, directory, models, prefixes, usual })
}
