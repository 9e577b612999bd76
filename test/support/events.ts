import type { Event } from "@opencode-ai/sdk/v2"

/** Some events of the stream (heartbeats) are missing from the SDK's types. */
export type OpencodeEventOf = { [Type in Event["type"]]: Extract<Event, { type: Type }> }[Event["type"]] & {
  at: number
}

type Waiter = { matches: (event: OpencodeEventOf) => boolean; found: (event: OpencodeEventOf) => void }

type WaitOptions = {
  timeout?: number
  /** A mark() taken earlier: events before it do not count. */
  since?: number
  /** What is awaited, for the error's text. Default: the predicate's source. */
  what?: string
}

const DEFAULT_WAIT_MS = 20_000
const CONNECT_TIMEOUT_MS = 20_000

/** All events of one project directory, over restarts of OpenCode as well. `logs` goes into errors' texts. */
export const createEventLog = (logs: () => string) => {
  const all: OpencodeEventOf[] = []
  const waiters = new Set<Waiter>()
  let connection: AbortController | undefined

  const take = (event: OpencodeEventOf) => {
    all.push(event)
    for (const waiter of waiters) if (waiter.matches(event)) waiter.found(event)
  }

  const read = async (body: ReadableStream<Uint8Array>) => {
    const reader = body.getReader()
    const decoder = new TextDecoder()
    let buffer = ""
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      const blocks = (buffer + decoder.decode(value, { stream: true })).split("\n\n")
      buffer = blocks.pop() ?? ""
      for (const block of blocks) {
        const data = block.split("\n").find((line) => line.startsWith("data:"))
        if (data) take({ ...JSON.parse(data.slice("data:".length)), at: performance.now() })
      }
    }
  }

  const waitFor = (
    predicate: (event: OpencodeEventOf) => boolean,
    { timeout = DEFAULT_WAIT_MS, since = 0, what = String(predicate) }: WaitOptions = {},
  ): Promise<OpencodeEventOf> => {
    const past = all.slice(since).find(predicate)
    if (past) return Promise.resolve(past)
    return new Promise((resolve, reject) => {
      const settle = () => {
        clearTimeout(timer)
        waiters.delete(waiter)
      }
      const waiter: Waiter = {
        matches: predicate,
        found: (event) => {
          settle()
          resolve(event)
        },
      }
      const timer = setTimeout(() => {
        settle()
        const types = all.slice(-20).map((event) => event.type)
        reject(new Error(`no event in ${timeout} ms: ${what}\nlast events: ${types.join(", ")}\n${logs()}`))
      }, timeout)
      waiters.add(waiter)
    })
  }

  return {
    all: all as readonly OpencodeEventOf[],
    /** To be given as `since`: only what comes from now on counts. */
    mark: () => all.length,
    waitFor,
    /** Resolves when an event that concerns somebody has come since `mark`, or after `limit` ms. */
    since: (mark: number, limit: number, concerns: (event: OpencodeEventOf) => boolean = () => true) =>
      waitFor(concerns, { since: mark, timeout: Math.max(0, limit), what: "news" }).then(
        () => {},
        () => {},
      ),
    /** Resolves once OpenCode says that it listens; never rejects later, when OpenCode goes away. */
    async connect(url: string, directory: string) {
      connection?.abort()
      connection = new AbortController()
      const since = all.length
      const { signal } = connection
      const response = await fetch(`${url}/event?directory=${encodeURIComponent(directory)}`, { signal })
      if (!response.body) throw new Error(`no event stream: ${response.status}`)
      read(response.body).catch(() => {})
      const what = "server.connected"
      await waitFor((event) => event.type === what, { since, what, timeout: CONNECT_TIMEOUT_MS })
    },
    close: () => connection?.abort(),
  }
}
