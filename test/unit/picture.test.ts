import { describe, expect, test } from "vitest"
import { pictureOf, steady } from "../support/picture.ts"
import type { Cell } from "../support/terminal.ts"

const cellsOf = (text: string, more: Partial<Cell> = {}): Cell[] =>
  [...text].map((character) => ({
    text: character,
    width: 1,
    foreground: undefined,
    background: undefined,
    bold: false,
    dim: false,
    italic: false,
    underline: false,
    ...more,
  }))

const textOf = (rows: readonly (readonly Cell[])[]) => rows.map((row) => row.map(({ text }) => text).join(""))
const colours = { foreground: "#eeeeee", background: "#101010" }

describe("a picture of a screen", () => {
  test("a picture of a screen shows each cell's text at its position, in its colour and style", () => {
    const row = [...cellsOf("  a<b "), ...cellsOf("bold", { bold: true, foreground: "#ff0000" })]
    const svg = pictureOf([row], { title: 'The "screen"', colours })
    expect(svg).toContain('<text x="16" y="13" textLength="24" class="c0">a&lt;b</text>')
    expect(svg).toContain('<text x="48" y="13" textLength="32" class="c1 b">bold</text>')
    expect(svg).toContain(".c0{fill:#eeeeee}.c1{fill:#ff0000}")
    expect(svg).toContain('aria-label="The &quot;screen&quot;"')
  })

  test("a picture of a screen draws backgrounds and line characters as shapes", () => {
    const svg = pictureOf([cellsOf("━━", { foreground: "#00ff00", background: "#222222" })], { title: "", colours })
    expect(svg).toContain('<rect class="c0" x="0" y="0" width="16" height="17"/>')
    expect(svg).toContain('<rect class="c1" x="0" y="7.1" width="16" height="2.7"/>')
    expect(svg).not.toContain("<text ")
  })
})

describe("a steady screen", () => {
  test("a steady screen keeps its columns when a replaced text is shorter or longer", () => {
    const rows = [cellsOf("took 12.3s, ok    side"), cellsOf("took 4s, ok       side")]
    expect(textOf(steady(rows, [[/\d+(\.\d)?s/, "5.0s"]]))).toEqual([
      "took 5.0s, ok     side",
      "took 5.0s, ok     side",
    ])
  })

  test("a steady screen replaces every match in a row", () => {
    expect(textOf(steady([cellsOf("⠙ one  ⠸ two  ")], [[/[⠙⠸]/, "⠋"]]))).toEqual(["⠋ one  ⠋ two  "])
  })
})
