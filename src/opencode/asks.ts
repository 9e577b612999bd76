import type { Ask } from "../core/task.ts"
import { oneLine } from "../lib/text.ts"

type Asked = { readonly id: string; readonly sessionID: string }

export const permissionAsk = (
  { id, sessionID, permission, patterns }: Asked & { permission?: string; patterns?: readonly string[] },
  askedAt: number,
): Ask => {
  const doing = doingOf(permission, patterns)
  const what = describePermission(permission, patterns)
  return { id, sessionID, kind: "permission", what, ...(doing && { doing }), askedAt }
}

export const questionAsk = (
  { id, sessionID, questions }: Asked & { questions?: readonly { question?: string }[] },
  askedAt: number,
): Ask => ({ id, sessionID, kind: "question", what: describeQuestion(questions), askedAt })

const named = (patterns: readonly string[] = []): string => patterns.filter((pattern) => pattern !== "*").join(", ")

/** Example: `bash: rm -rf build`. */
function describePermission(permission = "a permission", patterns?: readonly string[]): string {
  const what = named(patterns)
  return oneLine(what === "" ? permission : `${permission}: ${what}`)
}

/** Descriptions of OpenCode's permissions. */
const DOING: Readonly<Record<string, string>> = {
  __proto__: null as never,
  read: "reading",
  edit: "editing",
  bash: "running",
  webfetch: "fetching",
  external_directory: "using",
  doom_loop: "the same call three times in a row of",
}

/** Example: `reading /x`. */
function doingOf(permission = "", patterns?: readonly string[]): string | undefined {
  const [verb, what] = [DOING[permission], named(patterns)]
  return verb && what !== "" ? oneLine(`${verb} ${what}`) : undefined
}

const describeQuestion = (questions: readonly { question?: string }[] = []): string =>
  oneLine(questions.flatMap(({ question }) => question ?? []).join(" / ") || "a question")
