/** Adds an entry and drops the oldest above `most`. */
export function addBounded<Value>(map: Map<string, Value>, key: string, value: Value, most: number): void {
  map.delete(key)
  map.set(key, value)
  const oldest = map.size > most ? map.keys().next().value : undefined
  if (oldest !== undefined) map.delete(oldest)
}

/** Calls `build` at the first use. For schemas, which take too long to build while OpenCode starts. */
export function lazy<Built extends object>(build: () => Built): () => Built {
  let built: Built | undefined
  return () => {
    built ??= build()
    return built
  }
}
