import type { Built } from "./build.ts"
import type { Row } from "./rows.ts"

type Context = {
  /** How often each measurement is repeated, each time on a fresh OpenCode. */
  readonly runs: number
  /** Small numbers, to see that everything works: not for figures. */
  readonly short: boolean
  readonly built: Built
  /** Tells how far it has come. */
  readonly progress: (text: string) => void
}

/** Measures some rows of the table. */
export type Case = (context: Context) => Promise<readonly Row[]>

/** Whose samples: OpenCode's own tasks, the plugin, or the least that any plugin does. */
export type Side = "native" | "plugin" | "least"

/** Samples that come in one by one, for each side. */
export const collector = () => {
  const samples = new Map<string, Record<Side, number[]>>()
  const all = (figure: string) => {
    const known = samples.get(figure) ?? { native: [], plugin: [], least: [] }
    samples.set(figure, known)
    return known
  }
  const of = (figure: string) => {
    const { native, plugin } = all(figure)
    return { native, plugin }
  }
  return {
    add: (figure: string, side: Side, value: number) => void all(figure)[side].push(value),
    of,
    figures: () => [...samples.keys()],
    least: (figure: string) => all(figure).least,
  }
}
