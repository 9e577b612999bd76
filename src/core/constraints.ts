import { budget } from "../lib/money.ts"
import { oneLine } from "../lib/text.ts"
import { MOST_COMMAND_CHARS, quoted } from "./receipt.ts"
import type { Task } from "./task.ts"

/** Prompt text about how the run is judged and what it may cost; empty for nothing. */
export function constraintsOf({ place, run, member }: Pick<Task, "place" | "run" | "member">): string {
  const { check, budget: allowed } = run
  const merged = place?.merge ? "what you changed is merged into the files of the agent that you work for" : undefined
  const named = quoted(oneLine(check ?? "", MOST_COMMAND_CHARS))
  return [
    ...(check === undefined
      ? []
      : [
          member?.kind === "tries"
            ? `When you have ended your turn, ${named} is run here, once: your work passes only when that succeeds, and you are not asked again.`
            : `When you have ended your turn, ${named} is run here: your work counts as done only when that succeeds, and you are asked again when it does not.`,
        ]),
    ...(merged ? [check === undefined ? `When you have completed, ${merged}.` : `Then ${merged}.`] : []),
    ...(allowed ? [`You may spend ${budget(allowed.max)}; near that you are asked for your last word.`] : []),
  ].join(" ")
}
