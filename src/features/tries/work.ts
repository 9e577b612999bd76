import type { GroupAtWork, GroupWork } from "../../core/feature.ts"
import { chosenIn, hasNeverBegun } from "../../core/group.ts"
import { modelKey } from "../../core/limits.ts"
import { NO_RECEIPT, type Receipt, receiptLine } from "../../core/receipt.ts"
import type { Task, Value } from "../../core/task.ts"
import { head, inTagsWithID, oneLine, tail } from "../../lib/text.ts"
import { named } from "../../present/summary.ts"
import { type TriesPlan, triesResult } from "./results.ts"

/** The work of a group of tries beside the runs of the tries. */
export const triesWork: GroupWork<TriesPlan> = {
  prompt({ task, plan, members }, text, nth) {
    const isEarlier = ({ member }: Task) => (member?.nth ?? nth) < nth
    const earlier = () => members().flatMap((each) => (isEarlier(each.task) ? [each.task] : []))
    return plan.ladder ? withDigest(text, task.id, earlier()) : text
  },
  async finish(group) {
    const { plan } = group
    const members = group.members()
    const chosen = members.find(({ task: { id } }) => id === chosenIn(plan))?.task
    const { refs, found, ...checked } = await group.archive()
    const { filesChanged = [], moreFiles = 0 } = chosen?.outcome ?? {}
    const receipt = receiptOf(plan, chosen)
    const value = chosen && (await winnerValue(group, chosen))
    return {
      found: {
        ...found,
        ...(receipt && { receipt }),
        ...(value && { value }),
        filesChanged,
        moreFiles,
        group: triesResult(plan, members, refs, group.usage()),
      },
      ...checked,
    }
  },
}

/** Adds the check that the winner has passed. A crash may have lost this check from the winner's own record. */
function receiptOf({ passed }: TriesPlan, chosen: Task | undefined): Receipt | undefined {
  const { receipt } = chosen?.outcome ?? {}
  return passed && !receipt?.check ? { ...(receipt ?? NO_RECEIPT), check: passed } : receipt
}

/**
 * Stores the winner's value in a file under the group's id. Values of tries that lost are not stored in the project.
 */
async function winnerValue(group: GroupAtWork<TriesPlan>, winner: Task): Promise<Value | undefined> {
  const { value } = winner.outcome ?? {}
  if (!value?.valid) return value
  try {
    const file = await group.keep(await group.answer(winner))
    return { ...value, ...(file && { file }) }
  } catch (error) {
    // Without the file the value stays valid: readers take it from the winner's session.
    group.warn("a value could not be read to be kept in a file", error)
    return value
  }
}

const DIGEST_CHARS = 8000
const DIGEST_OUTPUT_LINES = 60
const DIGEST_OUTPUT_CHARS = 4000
const DIGEST_FILES = 50

/**
 * Prompt of a later try, after the results of earlier tries. The results stand as data between tags that they cannot
 * close.
 */
export function withDigest(prompt: string, groupID: string, members: readonly Task[]): string {
  const earlier = members.filter((task) => !hasNeverBegun(task))
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
  const output = tail(
    (receipt?.check?.output ?? "").trimEnd().split("\n").slice(-DIGEST_OUTPUT_LINES).join("\n"),
    DIGEST_OUTPUT_CHARS,
  )
  return [
    `Try ${(task.member?.nth ?? 0) + 1}${model ? ` (${modelKey(model)})` : ""}: ${oneLine(reason?.text ?? "it did not pass", 500)}`,
    ...(receipt ? [`Receipt: ${receiptLine(receipt)}`] : []),
    ...(files.length > 0 ? [`Files changed: ${named(files, DIGEST_FILES, work?.moreFiles)}`] : []),
    ...(output === "" ? [] : ["The end of its check's output:", output]),
  ].join("\n")
}
