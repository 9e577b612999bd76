/** What was really done in a run: made from what happened, never from what an agent says of it. */

/** What a command's output reports of the tests that it ran. */
export type TestCount = { readonly passed: number; readonly failed: number; readonly skipped: number }

/** A command that an agent ran in a shell. `exitCode` is absent where it was cut off, `tests` where it reported none. */
export type Command = {
  readonly command: string
  readonly exitCode?: number
  readonly tests?: TestCount
}

/** What the plugin's own check of a run came to. */
export type CheckResult = {
  readonly command: string
  readonly passed: boolean
  /** How often it was run. */
  readonly runs: number
  /** How the last of them ended, for a reader: `exit code 1`. */
  readonly how: string
  readonly tests?: TestCount
}

export type Receipt = {
  readonly commands: number
  readonly failed: number
  readonly cut: number
  readonly files: number
  /** The last commands, newest last, each on one line. */
  readonly latest: readonly Command[]
  /** Of the last command that reported any. */
  readonly tests?: TestCount
  readonly check?: CheckResult
}
