import type { Ask } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"

type Asked = { readonly id: string; readonly sessionID: string }

/** A permission question as the host tells it. */
export const permissionAsk = (
  { id, sessionID, permission, patterns }: Asked & { permission?: string; patterns?: readonly string[] },
  askedAt: number,
): Ask => ({ id, sessionID, kind: "permission", what: describePermission(permission, patterns), askedAt })

/** Any other question as the host tells it. */
export const questionAsk = (
  { id, sessionID, questions }: Asked & { questions?: readonly { question?: string }[] },
  askedAt: number,
): Ask => ({ id, sessionID, kind: "question", what: describeQuestion(questions), askedAt })

/** One line that says what a permission question is about: `bash: rm -rf build`. */
function describePermission(permission = "a permission", patterns: readonly string[] = []): string {
  const what = patterns.filter((pattern) => pattern !== "*").join(", ")
  return oneLine(what === "" ? permission : `${permission}: ${what}`)
}

const describeQuestion = (questions: readonly { question?: string }[] = []): string =>
  oneLine(questions.flatMap(({ question }) => question ?? []).join(" / ") || "a question")
