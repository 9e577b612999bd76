import { answerText, withoutCompaction } from "./outcome.ts"
import type { Message } from "./ports.ts"
import type { Ending, LastWord, Reason, Run } from "./task.ts"

/** Message that asks a run near a limit for its last word. */
export const lastWordRequest = (reason: Reason): string =>
  `${nearness(reason)} Stop working now and call no more tools: calls are refused. Answer at once: what is done, what is left, and where it lies. This answer ends your work.`

/** Error that the run's tool calls return from then on. */
export const lastWordRefusal = (reason: Reason): string =>
  `Refused. ${nearness(reason)} Call no more tools. Answer now: what is done, what is left, and where it lies.`

/**
 * Example: `You are near the session's budget: the session's tasks spent $0.0912 of $0.10 (option maxCostPerSession).`
 */
const nearness = ({ text }: Reason): string =>
  text.replace(/^Stopped at (its )?/, (_all, own) => `You are near ${own ? "your " : ""}`)

/**
 * End of a run that was asked for its last word. If it answered, the limit is the reason of its end; if it ended before
 * it read the question, it ended by itself.
 */
export function endAfter(ending: Ending, lastWord: LastWord | undefined, messages: readonly Message[]): Ending {
  if (!lastWord || lastWord.state === "told" || ending.type !== "completed") return ending
  const { code, text } = lastWord.reason
  // Text from before the question is not its last word.
  if (
    answerText(
      withoutCompaction(messages)
        .filter(({ role }) => role === "assistant")
        .slice(-1),
    ) === ""
  )
    return { type: "failed", reason: lastWord.reason, at: ending.at }
  const reason = { code, text: `${text.replace(/\.$/, "")}; its last word is below.` }
  return { type: "failed", reason, at: ending.at, saidLastWord: true }
}

/** End of such a run after a crash: any answer begun after the question is its last word. */
export function endAfterCrash(ending: Ending, run: Run, messages: readonly Message[]): Ending {
  const { lastWordAt: at, lastWordFor: reason } = run
  const answer = withoutCompaction(messages).findLast(({ role }) => role === "assistant")
  if (at === undefined || !reason || !answer || answer.createdAt < at) return ending
  return endAfter(ending, { state: "spoke", reason, at }, messages)
}
