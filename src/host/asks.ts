import { oneLine } from "../core/text.ts"

/** One line that says what a permission question is about: `bash: rm -rf build`. */
export function describePermission(permission = "a permission", patterns: readonly string[] = []): string {
  const what = patterns.filter((pattern) => pattern !== "*").join(", ")
  return oneLine(what === "" ? permission : `${permission}: ${what}`)
}

export const describeQuestion = (questions: readonly { question?: string }[] = []): string =>
  oneLine(questions.flatMap(({ question }) => question ?? []).join(" / ") || "a question")
