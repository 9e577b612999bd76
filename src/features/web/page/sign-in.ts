import { accessText, type Hello, type Issued, proofText, splitCredential } from "../handshake.ts"
import { errorIn } from "./response.ts"

/** What lets this page in: its session's id, with the key that belongs to it, or a link's. */
export type WebSession = { readonly id: string; readonly key: Key }

type Key = Awaited<ReturnType<typeof crypto.subtle.importKey>>

/** Where the pass is kept for the next time. */
export type CredentialStore = {
  get(): Promise<WebSession | undefined>
  put(pass: WebSession): Promise<void>
  remove(): Promise<void>
}

/** What the page needs of its surroundings. */
export type Around = {
  readonly fetch: (url: string, init?: RequestInit) => Promise<Response>
  readonly origin: string
}

/** The server has let the page in under this key, or has said, provably, that the session has ended. */
export type Entered = { readonly bearer: string } | { readonly ended: true }

/** How to get in; the signal ends the asking. */
export type TaskHandle = (signal: AbortSignal) => Promise<Entered>

/** Whoever answers is not the server that gave the pass: nothing is sent to it. */
export class UntrustedServer extends Error {
  override readonly name = "Stranger"
}

const NONCE_BYTES = 16
const HMAC = { name: "HMAC", hash: "SHA-256" }

/** A pass from its parts. Its key cannot be read again, by nobody's script. */
export async function webSessionOf(id: string, secret: string): Promise<WebSession> {
  const key = await crypto.subtle.importKey("raw", new TextEncoder().encode(secret), HMAC, false, ["sign", "verify"])
  return { id, key }
}

/**
 * Has the server prove that it is the one that gave the pass, at this very address, and returns what it lets the page
 * in by. Rejects with a `Stranger` where it is another; else where nobody answers.
 */
export async function enter({ id, key }: WebSession, { fetch, origin }: Around, signal: AbortSignal): Promise<Entered> {
  const nonce = hex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))
  const response = await fetch(`/hello?id=${encodeURIComponent(id)}&nonce=${nonce}`, { signal })
  const hello = ((await response.json().catch(() => undefined)) ?? {}) as Partial<Hello>
  const { boot, state, proof } = hello
  if (typeof boot !== "string" || typeof proof !== "string" || (state !== "live" && state !== "ended"))
    throw new UntrustedServer(UNKNOWN)
  const said = proofText({ origin: String(hello.origin), boot, state }, nonce)
  if (!(await crypto.subtle.verify(HMAC, key, bytesOf(proof), new TextEncoder().encode(said))))
    throw new UntrustedServer(UNKNOWN)
  if (hello.origin !== origin) throw new UntrustedServer(elsewhere(String(hello.origin), origin))
  if (state === "ended") return { ended: true }
  const access = await crypto.subtle.sign(HMAC, key, new TextEncoder().encode(accessText(boot)))
  return { bearer: `${id}.${base64url(new Uint8Array(access))}` }
}

/** Exchanges a link's code for a pass; undefined where it is none, used up or too old. Rejects as `enter` does. */
export async function signIn(code: string, around: Around, signal: AbortSignal): Promise<WebSession | undefined> {
  const parts = splitCredential(code)
  if (!parts) return undefined
  const entered = await enter(await webSessionOf(parts.id, parts.rest), around, signal)
  if ("ended" in entered) return undefined
  const headers = { authorization: `Bearer ${entered.bearer}` }
  const response = await around.fetch("/sign-in", { method: "POST", headers, signal })
  if (response.status === 401) return undefined
  if (!response.ok) throw new Error(await errorIn(response))
  const issued = (await response.json()) as Issued
  return webSessionOf(issued.id, issued.secret)
}

const UNKNOWN =
  "What answers at this address cannot prove that it is the OpenCode that this page, or its link, is from. Nothing was sent to it. The page comes back by itself when that OpenCode does. If the link was not copied whole, or the page is at another address now, type /board in OpenCode's terminal for a new link."

const elsewhere = (served: string, here: string): string =>
  `OpenCode serves this page at ${served}, and this is ${here}. Open it there. Through a tunnel, forward the same port: ssh -L ${new URL(served).port}:${new URL(served).host} <the machine>.`

const hex = (bytes: Uint8Array): string => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")

const base64url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")

/** Empty where the text is no base64url. */
function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0))
  } catch {
    return new Uint8Array()
  }
}
