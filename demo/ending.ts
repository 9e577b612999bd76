/** Takes back something that the demo made. */
type Undo = () => unknown

/** A reason to end with exit code 1, in words for the user. */
export class Problem extends Error {}

const SIGNALS = [
  ["SIGHUP", 129],
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const

/**
 * Plays `main`, undoes what it handed to `afterwards`, the newest first, and ends the process: with 0, or with 1 and a
 * word on what went wrong. Ctrl-C and a reader that is gone undo it all, too.
 */
export async function playToEnd(main: (afterwards: (undo: Undo) => void) => Promise<void>): Promise<never> {
  const undos: Undo[] = []
  let undoing: Promise<void> | undefined
  const undoAll = () => {
    undoing ??= (async () => {
      for (const undo of undos.reverse()) await undo()
    })()
    return undoing
  }
  const stop = (code: number) => void undoAll().then(() => process.exit(code))
  for (const [signal, code] of SIGNALS) process.once(signal, () => stop(code))
  // The terminal or the pipe is gone: nobody looks any more.
  process.stdout.once("error", () => stop(1))
  process.stdout.on("error", () => {})
  try {
    await main((undo) => undos.push(undo))
  } catch (error) {
    // What breaks because a signal took it away is no problem to tell.
    const isStopped = undoing !== undefined
    await undoAll()
    if (!isStopped) console.error(error instanceof Problem ? `\n${error.message}` : error)
    if (!isStopped) process.exit(1)
  }
  await undoAll()
  process.exit(0)
}
