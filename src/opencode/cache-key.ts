/** Names of OpenCode's options for a provider's cache key. */
const CACHE_KEYS = ["promptCacheKey", "prompt_cache_key"] as const
/** OpenCode's own provider uses headers instead. */
const OWN_PROVIDER = "opencode"

/** Uses the cache key of the session whose prefix is shared, where OpenCode set one. */
export function cacheKeyInOptions(options: Record<string, unknown>, sessionID: string, ridden: string): void {
  for (const key of CACHE_KEYS) if (options[key] === sessionID) options[key] = ridden
}

/** Sets the header by which a provider routes a session's requests to one machine. */
export function cacheKeyInHeaders(headers: Record<string, string>, providerID: string, ridden: string): void {
  if (!providerID.startsWith(OWN_PROVIDER)) headers["x-session-affinity"] = ridden
}
