import type { Built } from "./build.ts"
import type { Row } from "./rows.ts"

type Context = {
  /** How often each measurement is repeated, each time on fresh hosts. */
  readonly runs: number
  /** Small numbers, to see that everything works: not for figures. */
  readonly short: boolean
  readonly built: Built
  /** Tells how far it has come. */
  readonly progress: (text: string) => void
}

/** Measures some rows of the table. */
export type Case = (context: Context) => Promise<readonly Row[]>

/** Samples that come in one by one, for either side. */
export const collector = () => {
  const samples = new Map<string, { native: number[]; plugin: number[] }>()
  const of = (figure: string) => {
    const known = samples.get(figure) ?? { native: [], plugin: [] }
    samples.set(figure, known)
    return known
  }
  return {
    add: (figure: string, side: "native" | "plugin", value: number) => void of(figure)[side].push(value),
    of,
    figures: () => [...samples.keys()],
  }
}
