import type { Refusal } from "../../../core/refusal.ts"
import { addBounded } from "../../../lib/bounded-set.ts"

/** A provider's answer as far as it was read. */
export type ProviderAnswer = Required<Pick<Refusal, "status" | "headers" | "at">> & Pick<Refusal, "body">

/**
 * Reads providers' refusals by wrapping the process's `fetch`, because OpenCode reports neither headers nor body until
 * it gives up. One wrapper serves all instances, and the last one restores the original; callers get exactly the
 * promise, answer and error they would get without it.
 */
export type RefusalReader = {
  /** The provider's answer to the session's last request, where it was a refusal. */
  refusal(sessionID: string): ProviderAnswer | undefined
  /** Stops reading. */
  close(): void
}

/** Sessions at work whose requests may carry the session id `named`, below `parentID` where given. */
export type SessionLookup = (named: string, parentID: string | undefined) => readonly string[]

/** A plugin instance that reads. `told`: called with each answer, refusal or not. */
type Reader = {
  readonly asking: SessionLookup
  told(sessionID: string, answer: ProviderAnswer | undefined): void
}

type Fetch = typeof globalThis.fetch
/** `original`: the `fetch` before wrapping. */
type Wrapped = { readonly original: Fetch; readonly fetch: Fetch; readonly readers: Set<Reader> }

/** A process may load the plugin twice, as two modules: they share `globalThis`. */
const KEY = Symbol.for("superagents.answers")
const shared = globalThis as { [KEY]?: Wrapped }

/** Headers by which OpenCode names session and parent; the second is for its own provider. */
const SESSION_HEADERS = ["x-session-affinity", "x-opencode-session"]
const PARENT_HEADER = "x-parent-session-id"

const LEAST_REFUSAL = 400
/** Bytes read of a refusal's body. */
const MOST_BODY_BYTES = 16_384
const MOST_HEADER_CHARS = 200
/** Headers that may tell when requests are possible again. */
const TELLING = /^retry-after|ratelimit/
/** Most sessions whose refusals are kept. */
const MOST_SESSIONS = 1000

/** Reads answers for sessions of tasks, until it is closed. */
export function createRefusalReader(asking: SessionLookup): RefusalReader {
  const refusals = new Map<string, ProviderAnswer>()
  const reader: Reader = {
    asking,
    told(sessionID, answer) {
      if (answer) addBounded(refusals, sessionID, answer, MOST_SESSIONS)
      else refusals.delete(sessionID)
    },
  }
  wrap().readers.add(reader)
  return {
    refusal: (sessionID) => refusals.get(sessionID),
    close() {
      refusals.clear()
      unwrap(reader)
    },
  }
}

/** Wraps `fetch` once in the process. */
function wrap(): Wrapped {
  if (shared[KEY]) return shared[KEY]
  const original = globalThis.fetch
  const readers = new Set<Reader>()
  const apply = (target: Fetch, self: unknown, given: Parameters<Fetch>) => {
    const listeners = readers.size > 0 ? listenersOf(readers, given) : []
    const answered = Reflect.apply(target, self, given)
    if (listeners.length > 0) overhear(answered, listeners)
    return answered
  }
  // Other properties of `fetch`, such as `preconnect`, stay the original's.
  const wrapped = { original, fetch: new Proxy(original, { apply }), readers }
  shared[KEY] = wrapped
  globalThis.fetch = wrapped.fetch
  return wrapped
}

/** Restores the original after the last reader, unless another wrapper was added on top. */
function unwrap(reader: Reader): void {
  const wrapped = shared[KEY]
  wrapped?.readers.delete(reader)
  if (wrapped?.readers.size !== 0 || globalThis.fetch !== wrapped.fetch) return
  globalThis.fetch = wrapped.original
  delete shared[KEY]
}

type Listener = (answer: ProviderAnswer | undefined) => void

/** Readers of this request's answer. Never throws and never changes the request. */
function listenersOf(readers: ReadonlySet<Reader>, [input, init]: Parameters<Fetch>): readonly Listener[] {
  try {
    const headers = init?.headers ?? (input instanceof Request ? input.headers : undefined)
    const named = SESSION_HEADERS.map((name) => headerIn(headers, name)).find((id) => id !== undefined)
    if (named === undefined) return []
    const parentID = headerIn(headers, PARENT_HEADER)
    return [...readers].flatMap((reader) =>
      reader.asking(named, parentID).map(
        (sessionID): Listener =>
          (answer) =>
            reader.told(sessionID, answer),
      ),
    )
  } catch {
    return []
  }
}

/** Undefined, too, for headers that can be read only once. */
function headerIn(headers: unknown, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined
  if (typeof headers !== "object" || headers === null) return undefined
  const isList = Array.isArray(headers)
  if (!isList && Symbol.iterator in headers) return undefined
  const entries: readonly unknown[] = isList ? headers : Object.entries(headers)
  for (const entry of entries) {
    const [key, value] = Array.isArray(entry) ? entry : []
    if (typeof key === "string" && key.toLowerCase() === name) return typeof value === "string" ? value : undefined
  }
  return undefined
}

/** Never throws. Runs before the caller sees the answer, so that its data is there before OpenCode's event. */
function overhear(answered: unknown, listeners: readonly Listener[]): void {
  const tell = (answer?: ProviderAnswer) => {
    for (const listener of listeners) listener(answer)
  }
  Promise.resolve(answered)
    .then((response) => listen(response as Response, tell))
    // No response: no refusal is known.
    .catch(() => tell())
}

/** Reports a refusal once its headers are there, and again with each piece of its body. */
async function listen(response: Response, tell: Listener): Promise<void> {
  const { status } = response
  if (!(status >= LEAST_REFUSAL)) return tell(undefined)
  const answer = { status, headers: tellingOf(response.headers), at: Date.now() }
  tell(answer)
  try {
    await readSome(response.clone(), (body) => tell({ ...answer, body }))
  } catch {
    // The body broke off: keep the part that was read.
  }
}

const tellingOf = (headers: Headers): Record<string, string> =>
  Object.fromEntries(
    [...headers].flatMap(([name, value]) => (TELLING.test(name) ? [[name, value.slice(0, MOST_HEADER_CHARS)]] : [])),
  )

/** Reads the beginning of a copy of the body, then cancels the copy to free it. */
async function readSome(copy: Response, told: (text: string) => void): Promise<void> {
  const reader = copy.body?.getReader()
  if (!reader) return
  const decoder = new TextDecoder()
  let [left, text] = [MOST_BODY_BYTES, ""]
  while (left > 0) {
    const { done, value } = await reader.read()
    if (done) return
    text += decoder.decode(value.subarray(0, left), { stream: true })
    left -= value.length
    told(text)
  }
  // Settles only when the other copy has ended.
  void reader.cancel().catch(() => {})
}
