import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import type { TriesPlan } from "../../core/group.ts"
import { modelKey } from "../../core/limits.ts"
import { receiptLine } from "../../core/receipt.ts"
import type { Model, Task } from "../../core/task.ts"
import { head, inTagsWithID, oneLine, tail } from "../../lib/text.ts"
import { text } from "../../options/spec.ts"
import type { GroupRequest } from "../../runtime/launch/request.ts"
import { HERE } from "../../runtime/places/here.ts"
import { nextTries } from "./next.ts"

const DIGEST_CHARS = 8000
const DIGEST_OUTPUT_LINES = 60
const DIGEST_OUTPUT_CHARS = 4000
const DIGEST_FILES = 50

/**
 * Prompt of a later try, after the results of earlier tries. The results stand as data between tags that they cannot
 * close.
 */
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

const MOST_TRIES = 5

/** Model of a try in a ladder, which names a model for each try. */
function rungOf({ ladder }: TriesPlan, nth: number): Model | undefined {
  const rung = ladder?.[nth]
  if (rung === undefined) return undefined
  const slash = rung.indexOf("/")
  return { provider: rung.slice(0, slash), id: rung.slice(slash + 1) }
}

export const tries: Feature = {
  name: "tries",
  arguments: {
    tries: {
      schema: () =>
        z
          .union(
            [z.int().min(2).max(MOST_TRIES), z.array(text(200)).min(2).max(MOST_TRIES)],
            `2 to ${MOST_TRIES}, or a list of 2 to ${MOST_TRIES} models`,
          )
          .optional()
          .describe(
            "How many at once, in worktrees, or models to try in turn, cheap first: the first to pass `check` becomes the task's result, `merge: true` brings it into your files.",
          ),
      read: async (given, { prompt }): Promise<GroupRequest> => {
        const ladder = Array.isArray(given) ? (given as readonly string[]) : undefined
        const own = ladder ? { count: ladder.length, ladder } : { count: given as number }
        return {
          plan: ({ timeout, place }) => ({
            group: { kind: "tries", prompt, timeout, ...own },
            ...(place && { place }),
          }),
        }
      },
      excludes: { each: "each item is done once", fork: "each try starts from the same files and nothing else" },
    },
  },
  group: (task) => {
    const { id, group: plan, place } = task
    if (plan?.kind !== "tries") return undefined
    return {
      member: (nth) => {
        const model = rungOf(plan, nth) ?? task.model
        return {
          name: `try ${nth + 1} of ${plan.count}${model ? `, ${modelKey(model)}` : ""}`,
          ...(model && { model }),
          ...(place && { place: { ...place, merge: false } }),
          sharesFiles: true,
        }
      },
      next: (members, { coming, generation }) => nextTries(plan, members, coming, generation),
      prompt: (text, _item, earlier) => (plan.ladder ? withDigest(text, id, earlier()) : text),
    }
  },
  refuses({ tries: asked, check, place, model }) {
    if (!asked) return undefined
    if (!check) return "`tries` needs `check`: nothing else tells which of them is good."
    if (place === HERE)
      return '`tries` and `place: "here"` do not go together: each try has a worktree of its own. Leave `place` out.'
    return Array.isArray(asked) && model
      ? "`model` and a list of models in `tries` do not go together. Leave `model` out."
      : undefined
  },
}
