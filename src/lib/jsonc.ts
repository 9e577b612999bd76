/** A string, which stays as it is, or a comment. */
const STRING_OR_COMMENT = /"(?:\\.|[^"\\])*"|\/\/[^\n]*|\/\*[\s\S]*?\*\//g
const STRING_OR_COMMA = /"(?:\\.|[^"\\])*"|,(?=\s*[}\]])/g

/** JSON with comments and trailing commas. Throws where it is neither. */
export function parseJsonc(text: string): unknown {
  const plain = text
    .replace(/^\uFEFF/, "")
    .replaceAll(STRING_OR_COMMENT, (found) => (found.startsWith('"') ? found : " "))
    .replaceAll(STRING_OR_COMMA, (found) => (found.startsWith('"') ? found : ""))
  return JSON.parse(plain)
}
