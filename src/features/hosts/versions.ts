/** Oldest supported OpenCode on a host. */
const LEAST = [1, 18, 28] as const

/** Sentence about an unsupported version; undefined for a supported one. */
export function versionProblem(host: string, version: string): string | undefined {
  const numbers = version.split(/[.-]/).slice(0, 3).map(Number)
  const differs = LEAST.findIndex((least, at) => numbers[at] !== least)
  const isOld = differs >= 0 && !((numbers[differs] ?? 0) > (LEAST[differs] ?? 0))
  if (!isOld && numbers[0] === 1) return undefined
  return `${host} has OpenCode ${version}; ${LEAST.join(".")} or newer, below 2, is needed.`
}
