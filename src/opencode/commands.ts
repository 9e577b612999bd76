/** Separators of shell commands, quoted ones too: splitting too often is safe, too seldom is not. */
const BORDERS = /&&|\|\||[;&|\n()`{}]|\$\(|<\(|>\(/

/** Commands that a shell line may run, without duplicates; the whole line first where it has several. */
export function commandsIn(line: string): string[] {
  const parts = line.split(BORDERS).map((part) => part.trim())
  return [...new Set([line.trim(), ...parts.filter((part) => part !== "")])]
}
