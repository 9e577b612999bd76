/**
 * Mutual authentication of page and server. Each caller has an id and a secret that the server derives from it, first
 * of a link, then of a web session; secrets are never sent again.
 *
 *     page    GET /hello?id&nonce
 *     server  origin, boot, state, proof (only the holder of the secret can create it, for this address)
 *     page    authorization: id.access (valid while this server process runs)
 */
export type Hello = {
  /**
   * Address that the server takes for its own. Behind a proxy that forwards requests, the page sees another address.
   */
  readonly origin: string
  /** Id of the server process. */
  readonly boot: string
  readonly state: "live" | "ended"
  readonly proof: string
}

export const proofText = ({ origin, boot, state }: Omit<Hello, "proof">, nonce: string): string =>
  ["superagents proof", origin, boot, state, nonce].join("\n")

export const accessText = (boot: string): string => `superagents access\n${boot}`

/** A new web session, as the server hands it to the page. */
export type Issued = { readonly id: string; readonly secret: string }

/** Splits `id.rest` at the last dot: ids contain dots. */
export function splitCredential(text: string): { id: string; rest: string } | undefined {
  const at = text.lastIndexOf(".")
  return at > 0 ? { id: text.slice(0, at), rest: text.slice(at + 1) } : undefined
}
