import { parseArgs } from "node:util"

const DEFAULT_RUNS = 5

export const USAGE = `npm run bench [-- name…] [--runs n] [--short] [--json file] [--write]

  name…        the measurements to make; without any, all
  --runs n     repeat each n times (${DEFAULT_RUNS})
  --short      small numbers, one run: to see that everything works
  --json file  write all samples there
  --write      put the table into docs/benchmarks.md`

export type Wanted = {
  readonly names: readonly string[]
  readonly runs: number
  readonly short: boolean
  readonly write: boolean
  readonly json?: string
  readonly help: boolean
}

/** Throws an error with a text for readers where the command line cannot be understood. */
export const wantedFrom = (argv: readonly string[], known: readonly string[]): Wanted => {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      runs: { type: "string" },
      json: { type: "string" },
      short: { type: "boolean", default: false },
      write: { type: "boolean", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  })
  const unknown = positionals.filter((name) => !known.includes(name))
  if (unknown.length > 0) throw new Error(`No measurement ${unknown.join(", ")}. There are: ${known.join(", ")}.`)
  const runs = Number(values.runs ?? (values.short ? 1 : DEFAULT_RUNS))
  if (!Number.isInteger(runs) || runs < 1) throw new Error(`--runs must be a whole number above 0, not ${values.runs}.`)
  const { short = false, write = false, help = false, json } = values
  if (write && (short || positionals.length > 0))
    throw new Error("--write needs the whole table: leave out names and --short.")
  return { names: positionals.length > 0 ? positionals : known, runs, short, write, json, help }
}
