/** Calls `build` at the first use. For schemas, which take too long to build while OpenCode starts. */
export function lazy<Built extends object>(build: () => Built): () => Built {
  let built: Built | undefined
  return () => {
    built ??= build()
    return built
  }
}
