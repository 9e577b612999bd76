/**
 * How page and server know each other, for both. Whoever comes in has an id and a secret that the server can derive
 * from the id: first that of a link, which holds once, then that of the session that the page got for it. Neither secret
 * is ever sent again:
 *
 *   page    GET /hello?id&nonce        nothing that is of use to anybody else
 *   server  origin, boot, state, proof: only who can derive the secret can say this, of this very address
 *   page    authorization: id.access   holds for this life of the server, and for the next it is worth nothing
 */
export type Hello = {
  /** Where the server itself believes to be served: another that passes our questions on to it is somewhere else. */
  readonly origin: string
  /** This life of the server. */
  readonly boot: string
  readonly state: "live" | "ended"
  readonly proof: string
}

export const proofText = ({ origin, boot, state }: Omit<Hello, "proof">, nonce: string): string =>
  ["superagents proof", origin, boot, state, nonce].join("\n")

export const accessText = (boot: string): string => `superagents access\n${boot}`

/** What the page gets for a link. */
export type Issued = { readonly id: string; readonly secret: string }

/** `id.rest` at its last dot: ids have dots themselves. */
export function splitCredential(text: string): { id: string; rest: string } | undefined {
  const at = text.lastIndexOf(".")
  return at > 0 ? { id: text.slice(0, at), rest: text.slice(at + 1) } : undefined
}
