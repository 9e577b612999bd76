import type { Answer } from "../../../core/refusal.ts"
import { addBounded } from "../../../lib/bounded-set.ts"

/**
 * What providers answer to the requests of tasks' sessions, read as it goes by: OpenCode tells a plugin of no header and
 * no body of a refusal until it has given up. For this the process's `fetch` is wrapped, once, however many instances of
 * the plugin there are; the last of them to end puts it back. Of other requests, and of answers that are no refusals,
 * nothing is read. Whoever calls `fetch` gets the very promise, answer and error that it would get without us.
 */
export type Answers = {
  /** The answer to the session's last request, where that was a refusal. */
  refusal(sessionID: string): Answer | undefined
  /** Reads no more. */
  close(): void
}

/**
 * The sessions of tasks at work from which a request may come that goes under the name of `named`, by a session below
 * `parentID` where that is told.
 */
export type Asking = (named: string, parentID: string | undefined) => readonly string[]

/** One instance that reads. `told`: the session was answered, by a refusal or not. */
type Reader = {
  readonly asking: Asking
  told(sessionID: string, answer: Answer | undefined): void
}

type Fetch = typeof globalThis.fetch
/** `original`: what was there before us. */
type Wrapped = { readonly original: Fetch; readonly fetch: Fetch; readonly readers: Set<Reader> }

/** The plugin may be loaded twice in a process, as two modules: they share `globalThis`. */
const KEY = Symbol.for("superagents.answers")
const shared = globalThis as { [KEY]?: Wrapped }

/** By these OpenCode names the session that asks, the second where the provider is its own, and its parent. */
const SESSION_HEADERS = ["x-session-affinity", "x-opencode-session"]
const PARENT_HEADER = "x-parent-session-id"

const LEAST_REFUSAL = 400
/** What is read of a refusal; the rest goes by. */
const MOST_BODY_BYTES = 16_384
const MOST_HEADER_CHARS = 200
/** The headers that may tell when a provider opens. */
const TELLING = /^retry-after|ratelimit/
/** Sessions whose refusals are remembered at most. */
const MOST_SESSIONS = 1000

/** Reads the answers to sessions of tasks, until it is closed. */
export function readAnswers(asking: Asking): Answers {
  const refusals = new Map<string, Answer>()
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

/** The one wrap of the process, which is made where there is none. */
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
  // All else that `fetch` has, `preconnect` say, is the original's.
  const wrapped = { original, fetch: new Proxy(original, { apply }), readers }
  shared[KEY] = wrapped
  globalThis.fetch = wrapped.fetch
  return wrapped
}

/** Puts the original back when nobody reads any more. Where somebody has wrapped ours, it stays below theirs. */
function unwrap(reader: Reader): void {
  const wrapped = shared[KEY]
  wrapped?.readers.delete(reader)
  if (wrapped?.readers.size !== 0 || globalThis.fetch !== wrapped.fetch) return
  globalThis.fetch = wrapped.original
  delete shared[KEY]
}

type Listener = (answer: Answer | undefined) => void

/** Who is to hear of the answer to this request. Never throws, and changes nothing of the request. */
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

/** Undefined, too, where the headers can be read only once: they are the request's. */
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

/** Never throws. Ours is the first to hear of the answer: what is told of it is there before OpenCode speaks of it. */
function overhear(answered: unknown, listeners: readonly Listener[]): void {
  const tell = (answer?: Answer) => {
    for (const listener of listeners) listener(answer)
  }
  Promise.resolve(answered)
    .then((response) => listen(response as Response, tell))
    // Nobody answered, or what answered is no response: nothing is known of a refusal.
    .catch(() => tell())
}

/** Tells of a refusal as soon as its headers are there, and again with each piece of its body. */
async function listen(response: Response, tell: Listener): Promise<void> {
  const { status } = response
  if (!(status >= LEAST_REFUSAL)) return tell(undefined)
  const answer = { status, headers: tellingOf(response.headers), at: Date.now() }
  tell(answer)
  try {
    await readSome(response.clone(), (body) => tell({ ...answer, body }))
  } catch {
    // It broke off: what was read by then is known.
  }
}

const tellingOf = (headers: Headers): Record<string, string> =>
  Object.fromEntries(
    [...headers].flatMap(([name, value]) => (TELLING.test(name) ? [[name, value.slice(0, MOST_HEADER_CHARS)]] : [])),
  )

/** Reads the beginning of a copy's body. The rest is given up, so that nothing of it is kept for us. */
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
  // Settles only when the other copy has ended, too.
  void reader.cancel().catch(() => {})
}
