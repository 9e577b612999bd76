import { readFileSync } from "node:fs"
import { cpus, totalmem } from "node:os"
import { isMet, type Row } from "./rows.ts"
import { figure, median, summary } from "./stats.ts"

const HEAD = ["figure", "native", "plugin", "ratio", "goal", "met"]

const ratioOf = ({ native, plugin }: Row): string => {
  const [base, ours] = [median(native), median(plugin)]
  return base > 0 ? `${(ours / base).toFixed(2)} ×` : ""
}

const goalOf = (row: Row): string => {
  if (!row.goal) return ""
  const limit = row.goal.limit(median(row.native))
  return Number.isFinite(limit) && row.native.length > 0
    ? `${row.goal.text} (${figure(limit, row.unit)})`
    : row.goal.text
}

const metOf = (row: Row): string => {
  const met = isMet(row)
  return met === undefined ? "" : met ? "yes" : "**no**"
}

const cells = (row: Row): string[] => [
  row.against ? `${row.figure} (against ${row.against})` : row.figure,
  row.native.length > 0 ? summary(row.native, row.unit) : "",
  summary(row.plugin, row.unit),
  ratioOf(row),
  goalOf(row),
  metOf(row),
]

export const markdownTable = (rows: readonly Row[]): string => {
  const line = (parts: readonly string[]) => `| ${parts.join(" | ")} |`
  return [line(HEAD), line(HEAD.map(() => "---")), ...rows.map((row) => line(cells(row)))].join("\n")
}

/** The same for a terminal: columns under each other. */
export const plainTable = (rows: readonly Row[]): string => {
  const lines = [HEAD, ...rows.map(cells)].map((line) => line.map((cell) => cell.replaceAll("**", "")))
  const widths = HEAD.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)))
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n")
}

export type Setting = ReturnType<typeof settingOf>

/** Where and with what the figures were made; no names of machines. */
export const settingOf = (runs: number) => {
  const versionOf = (file: string) => JSON.parse(readFileSync(new URL(file, import.meta.url), "utf8")).version as string
  return {
    date: new Date().toISOString().slice(0, 10),
    runs,
    cores: cpus().length,
    memoryGB: Math.round(totalmem() / 1024 ** 3),
    platform: `${process.platform} ${process.arch}`,
    node: process.versions.node,
    opencode: versionOf("../../node_modules/opencode-ai/package.json"),
    plugin: versionOf("../../package.json"),
  }
}

export const settingText = ({ date, runs, cores, memoryGB, platform, node, opencode, plugin }: Setting): string =>
  `${date}; ${platform}, ${cores} cores, ${memoryGB} GB; OpenCode ${opencode}, opencode-superagents ${plugin}, Node ${node}; ${runs} runs.`

const BEGIN = "<!-- bench:begin -->"
const END = "<!-- bench:end -->"

/** Puts the table between the markers of a page. */
export const withTable = (page: string, text: string): string => {
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)]
  if (begin < 0 || end < begin) throw new Error(`the page has no ${BEGIN} … ${END}`)
  return `${page.slice(0, begin + BEGIN.length)}\n\n${text}\n\n${page.slice(end)}`
}
