import { fetchDirectly } from "../lib/direct.ts"

/** How long the host's server may take to say that it is there, in ms. */
const PROBE_LIMIT_MS = 1500

/**
 * The address of OpenCode's own page for this directory, which a session's id completes. Undefined where no server
 * listens: the terminal UI names an address too, and nothing answers there.
 */
export async function sessionPages(serverUrl: URL | undefined, directory: string): Promise<string | undefined> {
  if (!serverUrl) return undefined
  try {
    // Any answer will do, a request for a password too.
    const signal = AbortSignal.timeout(PROBE_LIMIT_MS)
    const response = await fetchDirectly(new URL("/global/health", serverUrl), { signal })
    await response.body?.cancel()
  } catch {
    return undefined
  }
  return new URL(`/${Buffer.from(directory).toString("base64url")}/session/`, serverUrl).href
}
