import { accessText, type Hello, type Issued, proofText, splitCredential } from "../wire.ts"

/** Error message of a response. */
export async function errorIn(response: Response): Promise<string> {
  try {
    return String(((await response.json()) as { error: string }).error)
  } catch {
    return `The server answered with status ${response.status}.`
  }
}

/** Id and key of a web session or a link. */
export type WebSession = { readonly id: string; readonly key: Key }

type Key = Awaited<ReturnType<typeof crypto.subtle.importKey>>

export type SignInPorts = {
  readonly fetch: (url: string, init?: RequestInit) => Promise<Response>
  readonly origin: string
}

/** `ended`: the server has proven its identity and said that the web session has ended. */
export type SignInResult = { readonly bearer: string } | { readonly ended: true }

/** Authenticates the page. The signal cancels the attempt. */
export type Authenticate = (signal: AbortSignal) => Promise<SignInResult>

/** Another server answers at this address, so nothing secret is sent to it. */
export class UntrustedServer extends Error {
  override readonly name = "UntrustedServer"
}

const NONCE_BYTES = 16
const HMAC = { name: "HMAC", hash: "SHA-256" }

/** Makes a web session from a secret. Scripts cannot read its key. */
export async function webSessionOf(id: string, secret: string): Promise<WebSession> {
  const key = await crypto.subtle.importKey("raw", new TextEncoder().encode(secret), HMAC, false, ["sign"])
  return { id, key }
}

/**
 * Verifies the server at this address and returns the page's credential. Rejects with `UntrustedServer` where another
 * server answers, and with another error where none answers.
 */
export async function enter(
  { id, key }: WebSession,
  { fetch, origin }: SignInPorts,
  signal: AbortSignal,
): Promise<SignInResult> {
  const nonce = hex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)))
  const response = await fetch(`/hello?id=${encodeURIComponent(id)}&nonce=${nonce}`, { signal })
  const hello = ((await response.json().catch(() => undefined)) ?? {}) as Hello
  // Nothing of it is believed before its proof, which also proves that each field is as the server wrote it.
  if (hello.proof !== (await macOf(key, proofText(hello, nonce)))) throw new UntrustedServer(UNKNOWN)
  if (hello.origin !== origin) throw new UntrustedServer(otherAddress(hello.origin, origin))
  if (hello.state === "ended") return { ended: true }
  return { bearer: `${id}.${await macOf(key, accessText(hello.boot))}` }
}

/** Exchanges a link's code for a web session; undefined where the code is invalid or used. Rejects as `enter` does. */
export async function signIn(code: string, around: SignInPorts, signal: AbortSignal): Promise<WebSession | undefined> {
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

const otherAddress = (served: string, here: string): string =>
  `OpenCode serves this page at ${served}, and this is ${here}. Open it there. Through a tunnel, forward the same port: ssh -L ${new URL(served).port}:${new URL(served).host} <the machine>.`

const hex = (bytes: Uint8Array): string => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")

/** Signature of a text, as the server writes it: in base64url. */
async function macOf(key: Key, text: string): Promise<string> {
  const mac = await crypto.subtle.sign(HMAC, key, new TextEncoder().encode(text))
  return btoa(String.fromCharCode(...new Uint8Array(mac)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")
}
