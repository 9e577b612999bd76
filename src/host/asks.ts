const MOST_CHARS = 200

/** One line that says what a permission question is about: `bash: rm -rf build`. */
export function describePermission(permission = "a permission", patterns: readonly string[] = []): string {
  const what = patterns.filter((pattern) => pattern !== "*").join(", ")
  return oneLine(what === "" ? permission : `${permission}: ${what}`)
}

export const describeQuestion = (questions: readonly { question?: string }[] = []): string =>
  oneLine(questions.flatMap(({ question }) => question ?? []).join(" / ") || "a question")

function oneLine(text: string): string {
  const line = text.replace(/\s+/g, " ").trim()
  return line.length > MOST_CHARS ? `${line.slice(0, MOST_CHARS - 1)}…` : line
}
