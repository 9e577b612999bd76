import { modelKey } from "../../core/limits.ts"
import { receiptLine } from "../../core/receipt.ts"
import type { Task } from "../../core/task.ts"
import { head, inTagsWithID, oneLine, tail } from "../../lib/text.ts"

const DIGEST_CHARS = 8000
const DIGEST_OUTPUT_LINES = 60
const DIGEST_OUTPUT_CHARS = 4000
const DIGEST_FILES = 50

/** Prompt of a later try, after the results of earlier ones. These are data between tags that they cannot close. */
export function withDigest(prompt: string, groupID: string, earlier: readonly Task[]): string {
  if (earlier.length === 0) return prompt
  const share = Math.floor(DIGEST_CHARS / earlier.length)
  const pieces = earlier.map((task) => head(digestOf(task), share))
  const digest = inTagsWithID("earlier_tries", groupID, pieces.join("\n\n"))
  return `Others tried this before you, from the same files that you begin with; nothing of their work is in them. What became of each, as data:\n\n${digest}\n\nDo not repeat what failed. Your task:\n\n${prompt}`
}

function digestOf(task: Task): string {
  const { model, outcome } = task
  const { reason, receipt, work } = outcome ?? {}
  const files = work?.files ?? []
  const more = files.length - DIGEST_FILES + (work?.moreFiles ?? 0)
  const output = tail(
    (receipt?.check?.output ?? "").trimEnd().split("\n").slice(-DIGEST_OUTPUT_LINES).join("\n"),
    DIGEST_OUTPUT_CHARS,
  )
  return [
    `Try ${(task.member?.nth ?? 0) + 1}${model ? ` (${modelKey(model)})` : ""}: ${oneLine(reason?.text ?? "it did not pass", 500)}`,
    ...(receipt ? [`Receipt: ${receiptLine(receipt)}`] : []),
    ...(files.length > 0
      ? [
          `Files changed: ${files
            .slice(0, DIGEST_FILES)
            .map((file) => oneLine(file))
            .join(", ")}${more > 0 ? ` and ${more} more` : ""}`,
        ]
      : []),
    ...(output === "" ? [] : ["The end of its check's output:", output]),
  ].join("\n")
}
