/** Names of OpenCode's options for a provider's cache key. */
const CACHE_KEYS = ["promptCacheKey", "prompt_cache_key"] as const
/** Id of OpenCode's own provider, which uses headers instead of a cache key. */
const OWN_PROVIDER = "opencode"

/**
 * Replaces the session's cache key by that of `sharedSessionID`, the session whose request prefix is shared. Options in which
 * OpenCode has set no key stay as they are.
 */
export function cacheKeyInOptions(options: Record<string, unknown>, sessionID: string, sharedSessionID: string): void {
  for (const key of CACHE_KEYS) if (options[key] === sessionID) options[key] = sharedSessionID
}

/** Sets the header by which a provider routes a session's requests to one machine. */
export function cacheKeyInHeaders(headers: Record<string, string>, providerID: string, sharedSessionID: string): void {
  if (!providerID.startsWith(OWN_PROVIDER)) headers["x-session-affinity"] = sharedSessionID
}
