import { render } from "solid-js/web"
import { connect, setAuthentication } from "./api.ts"
import { App } from "./app.tsx"
import { readAddress } from "./navigation.tsx"
import { setParts } from "./page-part.ts"
import { PARTS } from "./registry.ts"
import { codeIn } from "./route.ts"
import { type Authenticate, enter, type SignInPorts, signIn, UntrustedServer, type WebSession } from "./sign-in.ts"
import { applyEvent, link, setLink, takeReadMarks, tick } from "./state.ts"

const NAME = "superagents"
const STORE = "pass"
const KEY = "this"

/**
 * Stores the web session's key in IndexedDB in a form that no script can read, so that a later server at this address
 * cannot read it. Without IndexedDB the session lasts until the page is reloaded.
 */
const credentialStore = {
  get: () => ask<WebSession | undefined>("readonly", (store) => store.get(KEY)).catch(() => undefined),
  put: (pass: WebSession) => ask<unknown>("readwrite", (store) => store.put(pass, KEY)).then(nothing, nothing),
  /** Removes this session unless a newer one has replaced it. Returns what was stored. */
  remove: ({ id }: WebSession) =>
    ask<WebSession | undefined>("readwrite", (store) => {
      const reading: IDBRequest<WebSession | undefined> = store.get(KEY)
      reading.addEventListener("success", () => {
        if (reading.result?.id === id) store.delete(KEY)
      })
      return reading
    }).catch(() => undefined),
}

const nothing = (): void => {}

async function ask<Result>(mode: IDBTransactionMode, work: (store: IDBObjectStore) => IDBRequest): Promise<Result> {
  const opening = indexedDB.open(NAME, 1)
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE)
  const database = await settled<IDBDatabase>(opening)
  try {
    return await settled<Result>(work(database.transaction(STORE, mode).objectStore(STORE)))
  } finally {
    database.close()
  }
}

function settled<Result>(request: IDBRequest): Promise<Result> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
    if (request instanceof IDBOpenDBRequest) request.onblocked = () => reject(new Error("blocked"))
  })
}

const TICK_MS = 1000
const ENTRY_MS = 10_000
const NEW_LINK =
  "Type /board in OpenCode's terminal for a new link. With opencode serve, its log names the file that has one."
const NO_KEY = `This page opens by a link that holds once. ${NEW_LINK}`
const USED = `This link was used before, or is too old. ${NEW_LINK}`
const ENDED = `This page's session has ended: it was signed out, or not used for a day. ${NEW_LINK}`
const AROUND: SignInPorts = { fetch: (url, init) => fetch(url, init), origin: location.origin }

const refuse = (message: string) => setLink({ state: "refused", message })

let connection: ReturnType<typeof connect> | undefined
/** A browser allows six connections to a server for all tabs together, so hidden tabs close theirs. */
const tabs = new BroadcastChannel("superagents")
let left = false
let beginnings = 0

async function begin(): Promise<void> {
  connection?.end()
  left = false
  const beginning = ++beginnings
  setLink({ state: "loading" })
  const code = codeIn(location.hash)
  // The code leaves the page's address at once.
  if (code !== undefined) history.replaceState(null, "", location.pathname)
  try {
    const fresh = code === undefined ? undefined : await signIn(code, AROUND, AbortSignal.timeout(ENTRY_MS))
    if (fresh) await credentialStore.put(fresh)
    const pass = fresh ?? (await credentialStore.get())
    // The user has opened another link in the meantime, so this one is dropped.
    if (beginning !== beginnings) return
    if (pass) listen(pass)
    else refuse(code === undefined ? NO_KEY : USED)
  } catch (error) {
    refuse(error instanceof UntrustedServer ? error.message : `OpenCode does not answer at this address. ${NEW_LINK}`)
  }
}

function listen(pass: WebSession): void {
  const beginning = beginnings
  const entry: Authenticate = (signal) => enter(pass, AROUND, signal)
  setAuthentication(entry)
  const heard = {
    event: applyEvent,
    lost: () => {
      const before = link()
      if (before.state !== "lost") setLink({ state: "lost", since: Date.now() })
    },
    untrustedServer: refuse,
    async ended() {
      const stored = await credentialStore.remove(pass)
      if (beginning !== beginnings) return
      if (stored && stored.id !== pass.id) void begin()
      else refuse(ENDED)
    },
  }
  const after = (ms: number, run: () => void) => {
    const timer = setTimeout(run, ms)
    return () => clearTimeout(timer)
  }
  connection = connect(entry, heard, { after, fetch: AROUND.fetch })
}

const hasten = () => {
  if (link().state === "lost") connection?.again()
}

tabs.onmessage = () => {
  if (!document.hidden || link().state === "refused") return
  connection?.end()
  left = true
}

const seen = () => {
  if (document.hidden) return
  tabs.postMessage("seen")
  if (left) void begin()
  else hasten()
}

addEventListener("hashchange", () => {
  if (codeIn(location.hash) !== undefined) void begin()
})
addEventListener("online", hasten)
addEventListener("storage", takeReadMarks)
document.addEventListener("visibilitychange", seen)
setInterval(() => {
  if (!document.hidden) tick()
}, TICK_MS)

setParts(PARTS)
readAddress()
tabs.postMessage("seen")
void begin()
const root = document.getElementById("root")
if (root) render(() => <App />, root)
