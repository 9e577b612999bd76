import type { Cell, Colours } from "./terminal.ts"

/** A terminal's screen as an SVG: its cells, in its colours. */

const CELL = { width: 8, height: 17, baseline: 13, font: 13.3 }
const MARGIN = 12
const RADIUS = 8
const FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

/** Drawn as shapes, since a font's own would leave gaps between the cells: left, top, width and height in a cell. */
const SHAPES: Readonly<Record<string, readonly [number, number, number, number]>> = {
  "█": [0, 0, 1, 1],
  "▀": [0, 0, 1, 0.5],
  "▄": [0, 0.5, 1, 0.5],
  "┃": [0.4, 0, 0.2, 1],
  "╹": [0.4, 0, 0.2, 0.5],
  "━": [0, 0.42, 1, 0.16],
  "─": [0, 0.47, 1, 0.06],
}

type Run = { readonly column: number; columns: number; text: string; readonly cell: Cell }

export type PictureOptions = { readonly title: string; readonly colours: Colours }

export function pictureOf(rows: readonly (readonly Cell[])[], { title, colours }: PictureOptions): string {
  const columns = Math.max(...rows.map((row) => row.length))
  const width = columns * CELL.width + 2 * MARGIN
  const height = rows.length * CELL.height + 2 * MARGIN
  const classes = new Classes()
  const body = rows.flatMap((row, index) => {
    const y = index * CELL.height
    return [...backgrounds(row, y, classes), ...shapes(row, y, classes, colours), ...texts(row, y, classes, colours)]
  })
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}">`,
    `<title>${escaped(title)}</title>`,
    `<style>rect{shape-rendering:crispEdges}text{font:${CELL.font}px ${FONTS};white-space:pre}.b{font-weight:bold}.i{font-style:italic}.u{text-decoration:underline}.d{opacity:.6}${classes.rules()}</style>`,
    `<rect width="${width}" height="${height}" rx="${RADIUS}" fill="${colours.background}"/>`,
    `<g transform="translate(${MARGIN} ${MARGIN})">`,
    ...body,
    "</g>",
    "</svg>",
    "",
  ].join("\n")
}

/** One short class for each colour. */
class Classes {
  readonly #names = new Map<string, string>()

  of(colour: string): string {
    const name = this.#names.get(colour) ?? `c${this.#names.size}`
    this.#names.set(colour, name)
    return name
  }

  rules(): string {
    return [...this.#names].map(([colour, name]) => `.${name}{fill:${colour}}`).join("")
  }
}

function backgrounds(row: readonly Cell[], y: number, classes: Classes): string[] {
  return runsOf(row, (a, b) => a.background === b.background).flatMap(({ column, columns, cell }) => {
    const colour = hex(cell.background)
    return colour ? [rect(classes.of(colour), column, y, columns, CELL.height)] : []
  })
}

function shapes(row: readonly Cell[], y: number, classes: Classes, { foreground }: Colours): string[] {
  return runsOf(row, (a, b) => a.text === b.text && sameInk(a, b)).flatMap(({ column, columns, cell }) => {
    const shape = SHAPES[cell.text]
    if (!shape) return []
    const [left, top, width, height] = shape
    const name = classes.of(hex(cell.foreground) ?? foreground)
    const rows = { y: y + top * CELL.height, height: height * CELL.height }
    if (width === 1) return [rect(name, column, rows.y, columns, rows.height)]
    return Array.from({ length: columns }, (_, at) => rect(name, column + at + left, rows.y, width, rows.height))
  })
}

function texts(row: readonly Cell[], y: number, classes: Classes, { foreground }: Colours): string[] {
  const inked = row.map((cell) => (SHAPES[cell.text] ? { ...cell, text: " " } : cell))
  return runsOf(inked, sameInk).flatMap(({ column, text, cell }) => {
    const start = text.length - text.trimStart().length
    const shown = text.trim()
    if (shown === "") return []
    const flags = [cell.bold && "b", cell.italic && "i", cell.underline && "u", cell.dim && "d"].filter(Boolean)
    const names = [classes.of(hex(cell.foreground) ?? foreground), ...flags].join(" ")
    const x = round((column + start) * CELL.width)
    const length = round([...shown].length * CELL.width)
    return [`<text x="${x}" y="${y + CELL.baseline}" textLength="${length}" class="${names}">${escaped(shown)}</text>`]
  })
}

const sameInk = (a: Cell, b: Cell): boolean =>
  a.foreground === b.foreground &&
  a.bold === b.bold &&
  a.italic === b.italic &&
  a.underline === b.underline &&
  a.dim === b.dim

/** Cells side by side that are alike, together. */
function runsOf(row: readonly Cell[], alike: (a: Cell, b: Cell) => boolean): Run[] {
  const runs: Run[] = []
  for (const [column, cell] of row.entries()) {
    const text = cell.width === 0 ? "" : cell.text || " "
    const last = runs.at(-1)
    if (last && alike(last.cell, cell)) {
      last.text += text
      last.columns++
    } else runs.push({ column, columns: 1, text, cell })
  }
  return runs
}

const rect = (name: string, column: number, y: number, columns: number, height: number) =>
  `<rect class="${name}" x="${round(column * CELL.width)}" y="${round(y)}" width="${round(columns * CELL.width)}" height="${round(height)}"/>`

const round = (value: number): number => Math.round(value * 10) / 10

/** Numbers of the terminal's own palette are left to the terminal: OpenCode's themes use none. */
const hex = (colour: string | number | undefined): string | undefined =>
  typeof colour === "string" ? colour : undefined

const escaped = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;")

type Replacement = readonly [RegExp, string | ((found: string) => string)]

/**
 * The screen with what differs from run to run put to something fixed. What follows a text that becomes longer or
 * shorter moves, up to the next gap of two blanks, so that columns stay where they are.
 */
export function steady(
  rows: readonly (readonly Cell[])[],
  replacements: readonly Replacement[],
): readonly (readonly Cell[])[] {
  return rows.map((row) => replacements.reduce((cells, [pattern, text]) => replaceIn(cells, pattern, text), row))
}

function replaceIn(row: readonly Cell[], pattern: RegExp, replacement: Replacement[1]): readonly Cell[] {
  const text = row.map((cell) => (cell.width === 0 ? "" : cell.text || " ")).join("")
  // A screen with wide characters is left alone: columns and characters are not the same there.
  if (text.length !== row.length) return row
  return [...text.matchAll(new RegExp(pattern, "g"))].reduceRight<readonly Cell[]>((cells, match) => {
    const [found] = match
    const last = cells[match.index + found.length - 1]
    if (!last) return cells
    const text = typeof replacement === "string" ? replacement : replacement(found)
    const put = [...text].map((character, index) => {
      const under = character === " " ? cells[match.index + index] : undefined
      return { ...(under ?? last), text: character }
    })
    return fitted(cells, match.index, found.length, put)
  }, row)
}

function fitted(cells: readonly Cell[], at: number, length: number, put: readonly Cell[]): readonly Cell[] {
  const after = cells.slice(at + length)
  const excess = put.length - length
  const gap = after.findIndex((cell, index) => isBlank(cell) && isBlank(after[index + 1]))
  const end = gap < 0 ? after.length : gap
  const blank = after[end] ?? put.at(-1)
  const room = Array.from({ length: Math.max(0, -excess) }, () => ({ ...(blank as Cell), text: " " }))
  const moved = [
    ...cells.slice(0, at),
    ...put,
    ...after.slice(0, end),
    ...room,
    ...after.slice(end + Math.max(0, excess)),
  ]
  return moved.slice(0, cells.length)
}

const isBlank = (cell: Cell | undefined): boolean => cell !== undefined && (cell.text === "" || cell.text === " ")
