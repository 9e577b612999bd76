import { appendFileSync } from "node:fs"
import type { Plugin } from "@opencode-ai/plugin"
import { type OpencodeCall, WRITE_AFTER_MS } from "./support/call-log.ts"

type Fetch = (request: Request) => Promise<Response>

/** The plugin in a wrapper that writes down each of its calls to OpenCode. Options: `entry`, `file`, `options`. */
const server: Plugin = async (input, given) => {
  const { entry, file, options } = given as { entry: string; file: string; options: Record<string, unknown> }
  const { default: plugin } = (await import(entry)) as { default: { server: Plugin } }
  const write = writerTo(file)
  const handed = input.client as unknown as { _client: { getConfig(): { fetch?: Fetch } } }
  const config = handed._client.getConfig()
  const plain = config.fetch ?? fetch
  const counting: Fetch = async (request) => {
    const at = Date.now()
    const begin = performance.now()
    try {
      return await plain(request)
    } finally {
      write({ ...placeOf(request), at, ms: performance.now() - begin })
    }
  }
  const client = { _client: { getConfig: () => ({ ...config, fetch: counting }) } }
  return plugin.server({ ...input, client: client as never }, options)
}

function placeOf({ method, url }: Request): { route: string; sessionID?: string } {
  const { pathname } = new URL(url)
  const route = pathname.replace(/\/(ses|msg|prt|per|que)_[^/]+/g, "/:id")
  return { route: `${method} ${route}`, sessionID: /\/(ses_[^/]+)/.exec(pathname)?.[1] }
}

/** Keeps what it gets for a moment: writing at once would be part of what is measured. */
function writerTo(file: string): (call: OpencodeCall) => void {
  let waiting: OpencodeCall[] = []
  return (call) => {
    if (waiting.length === 0) setTimeout(flush, WRITE_AFTER_MS).unref?.()
    waiting.push(call)
  }
  function flush() {
    appendFileSync(file, waiting.map((call) => `${JSON.stringify(call)}\n`).join(""))
    waiting = []
  }
}

export default { id: "superagents-counted", server }
