import { createHash, timingSafeEqual } from "node:crypto"
import type { Clock } from "../../core/ports.ts"
import type { Address } from "./address.ts"
import { codeIn, macOf, secretOf } from "./codes.ts"
import { accessText, type Hello, type Issued, proofText, splitCredential } from "./handshake.ts"
import type { WebSessions } from "./web-sessions.ts"

export type AuthPorts = {
  readonly address: Address
  readonly passes: WebSessions
  readonly clock: Pick<Clock, "now">
  /** A link was opened, and holds no more. */
  readonly opened: () => void
}

/** Who asks: a script with the token of the file, or the page with a pass. */
export type Caller = { readonly kind: "script" } | { readonly kind: "page"; readonly pass: string }

/** Who may come in. All secrets are compared in a time that tells nothing of them. */
export class Auth {
  readonly #ports: AuthPorts
  readonly #token: Buffer
  /** The codes that were used in this life: only its own are good. */
  readonly #used = new Set<string>()

  constructor(ports: AuthPorts) {
    this.#ports = ports
    this.#token = digest(ports.address.token)
  }

  get passes(): WebSessions {
    return this.#ports.passes
  }

  /** Proves to whoever holds the secret of this id who is speaking, and says whether the id still lets in. */
  hello(id: string, nonce: string): Hello {
    const { url: origin, key, boot } = this.#ports.address
    const said = { origin, boot, state: this.#isGood(id) ? "live" : "ended" } as const
    return { ...said, proof: macOf(secretOf(key, id), proofText(said, nonce)) }
  }

  /** Who shows this key; undefined for nobody who may come in. */
  caller(key: string): Caller | undefined {
    if (timingSafeEqual(digest(key), this.#token)) return { kind: "script" }
    const id = this.#idOf(key)
    if (id === undefined || codeIn(id) || !this.#isGood(id)) return undefined
    this.passes.use(id)
    return { kind: "page", pass: id }
  }

  /** A pass for a code, which is used up by that; undefined where it is not good. */
  signIn(key: string): Issued | undefined {
    const id = this.#idOf(key)
    if (id === undefined || !codeIn(id) || !this.#isGood(id)) return undefined
    this.#used.add(id)
    this.#ports.opened()
    const pass = this.passes.issue()
    return { id: pass, secret: secretOf(this.#ports.address.key, pass) }
  }

  /** The id in `id.access`, where the access is that of this life. */
  #idOf(key: string): string | undefined {
    const { id, rest } = splitCredential(key) ?? { id: "", rest: "" }
    const { address } = this.#ports
    const expected = macOf(secretOf(address.key, id), accessText(address.boot))
    return timingSafeEqual(digest(rest), digest(expected)) ? id : undefined
  }

  #isGood(id: string): boolean {
    const { address, clock, passes } = this.#ports
    const code = codeIn(id)
    if (!code) return passes.isLive(id)
    const isFresh = code.expires === 0 || clock.now() < code.expires
    return code.boot === address.boot && isFresh && !this.#used.has(id)
  }
}

/** All of one length, whatever was given. */
const digest = (text: string): Buffer => createHash("sha256").update(text).digest()
