/** The names under which OpenCode hands a provider the key of its cache, for those that take one. */
const CACHE_KEYS = ["promptCacheKey", "prompt_cache_key"] as const
/** OpenCode's own provider has headers of its own for a session. */
const OWN_PROVIDER = "opencode"

/** Has a session's requests go by the cache key of the one whose beginning they share, where the host gave them one. */
export function cacheKeyInOptions(options: Record<string, unknown>, sessionID: string, ridden: string): void {
  for (const key of CACHE_KEYS) if (options[key] === sessionID) options[key] = ridden
}

/** The same for the header by which a provider keeps a session's requests on one machine. */
export function cacheKeyInHeaders(headers: Record<string, string>, providerID: string, ridden: string): void {
  if (!providerID.startsWith(OWN_PROVIDER)) headers["x-session-affinity"] = ridden
}
