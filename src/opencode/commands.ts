/** Where one command of a shell ends and another may begin, in and out of quotes: rather too often than too seldom. */
const BORDERS = /&&|\|\||[;&|\n()`{}]|\$\(|<\(|>\(/

/** The commands that a line for the shell may run, the whole line first where it is more than one; each once. */
export function commandsIn(line: string): string[] {
  const parts = line.split(BORDERS).map((part) => part.trim())
  return [...new Set([line.trim(), ...parts.filter((part) => part !== "")])]
}
