import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { Runtime } from "../../../core/feature.ts"
import { WITHOUT_NATIVE } from "../../../opencode/native-task.ts"
import type { RequestPrefixes } from "./beginnings.ts"
import { OpencodeForks } from "./forks.ts"

export function openForks(
  { host, models, options, opencode }: Runtime,
  prefixes: RequestPrefixes | undefined,
): OpencodeForks {
  const { client, directory } = opencode as { readonly client: OpencodeClient; readonly directory: string }
  const usual = options.nativeTask ? {} : WITHOUT_NATIVE
  return new OpencodeForks({ client, sessions: host, directory, models, prefixes, usual })
}
