import { createHash, timingSafeEqual } from "node:crypto"
import type { Clock } from "../../core/ports.ts"
import type { Address } from "./address.ts"
import { codeIn, macOf, secretOf } from "./codes.ts"
import { accessText, type Hello, type Issued, proofText, splitCredential } from "./handshake.ts"
import type { WebSessions } from "./web-sessions.ts"

export type AuthPorts = {
  readonly address: Address
  readonly sessions: WebSessions
  readonly clock: Pick<Clock, "now">
  /** Called when a link was used. */
  readonly opened: () => void
}

/** Authenticated caller: a script with the token, or the page with a web session. */
export type PageCaller = { readonly kind: "script" } | { readonly kind: "page"; readonly pass: string }

/** Authentication. Secrets are compared in constant time. */
export class Auth {
  readonly #ports: AuthPorts
  readonly #token: Buffer
  /** Used codes of this server process; codes of others are invalid. */
  readonly #used = new Set<string>()

  constructor(ports: AuthPorts) {
    this.#ports = ports
    this.#token = digest(ports.address.token)
  }

  get passes(): WebSessions {
    return this.#ports.sessions
  }

  /** Proves the server's identity to the holder of this id's secret, and tells whether the id is valid. */
  hello(id: string, nonce: string): Hello {
    const { url: origin, key, boot } = this.#ports.address
    const said = { origin, boot, state: this.#isGood(id) ? "live" : "ended" } as const
    return { ...said, proof: macOf(secretOf(key, id), proofText(said, nonce)) }
  }

  /** Caller with this key; undefined for an invalid one. */
  caller(key: string): PageCaller | undefined {
    if (timingSafeEqual(digest(key), this.#token)) return { kind: "script" }
    const id = this.#idOf(key)
    if (id === undefined || codeIn(id) || !this.#isGood(id)) return undefined
    this.passes.use(id)
    return { kind: "page", pass: id }
  }

  /** Exchanges a code for a web session; undefined for an invalid code. The code cannot be used again. */
  signIn(key: string): Issued | undefined {
    const id = this.#idOf(key)
    if (id === undefined || !codeIn(id) || !this.#isGood(id)) return undefined
    this.#used.add(id)
    this.#ports.opened()
    const pass = this.passes.issue()
    return { id: pass, secret: secretOf(this.#ports.address.key, pass) }
  }

  /** Id in `id.access`, if the access is valid for this server process. */
  #idOf(key: string): string | undefined {
    const { id, rest } = splitCredential(key) ?? { id: "", rest: "" }
    const { address } = this.#ports
    const expected = macOf(secretOf(address.key, id), accessText(address.boot))
    return timingSafeEqual(digest(rest), digest(expected)) ? id : undefined
  }

  #isGood(id: string): boolean {
    const { address, clock, sessions } = this.#ports
    const code = codeIn(id)
    if (!code) return sessions.isLive(id)
    const isFresh = code.expires === 0 || clock.now() < code.expires
    return code.boot === address.boot && isFresh && !this.#used.has(id)
  }
}

/** Hashes make all values equally long. */
const digest = (text: string): Buffer => createHash("sha256").update(text).digest()
