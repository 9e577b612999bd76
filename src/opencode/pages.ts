import { fetchDirectly } from "../lib/direct.ts"

/** Time limit for the server's answer, in ms. */
const PROBE_LIMIT_MS = 1500

/**
 * Address of OpenCode's page for this directory, to be completed with a session id. Undefined without a listening
 * server: the terminal UI names an address that does not answer.
 */
export async function sessionPages(serverUrl: URL | undefined, directory: string): Promise<string | undefined> {
  if (!serverUrl) return undefined
  try {
    // Any answer counts, also a request for a password.
    const signal = AbortSignal.timeout(PROBE_LIMIT_MS)
    const response = await fetchDirectly(new URL("/global/health", serverUrl), { signal })
    await response.body?.cancel()
  } catch {
    return undefined
  }
  return new URL(`/${Buffer.from(directory).toString("base64url")}/session/`, serverUrl).href
}
