import type { CredentialStore, WebSession } from "./sign-in.ts"

const NAME = "superagents"
const STORE = "pass"
const KEY = "this"

/**
 * Stores the session's key in IndexedDB as non-extractable, so that a later server at this address cannot read it.
 * Without IndexedDB the session lasts until the page is reloaded.
 */
export const credentialStore: CredentialStore = {
  get: () => ask<WebSession | undefined>("readonly", (store) => store.get(KEY)).catch(() => undefined),
  put: (pass) => ask<unknown>("readwrite", (store) => store.put(pass, KEY)).then(nothing, nothing),
  remove: () => ask<unknown>("readwrite", (store) => store.delete(KEY)).then(nothing, nothing),
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
