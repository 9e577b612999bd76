import { styleText } from "node:util"
import { duration } from "../src/lib/format.ts"
import type { Agent, Usage } from "./watch.ts"

type Style = Parameters<typeof styleText>[0]

const SPINNER = [..."⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"]
const FRAME_MS = 100
const BAR_CELLS = 24
const MOST_COLUMNS = 110
const ICONS: Readonly<Record<string, readonly [icon: string, style: Style]>> = {
  completed: ["✓", "green"],
  error: ["✗", "red"],
  cancelled: ["⊘", "yellow"],
}
const HIDE_CURSOR = "\u001B[?25l"
const SHOW_CURSOR = "\u001B[?25h"

/**
 * What the user sees: lines that stay, and below them, on a terminal, a table that is drawn anew ten times a second.
 * Elsewhere (CI, a pipe) there is no table; the agents' changes are lines.
 */
export class Screen {
  readonly #out = process.stdout
  readonly live = Boolean(this.#out.isTTY) && process.env.TERM !== "dumb"
  readonly #colours = this.live && !process.env.NO_COLOR
  #drawn = 0

  paint(style: Style, text: string): string {
    return this.#colours ? styleText(style, text) : text
  }

  /** Columns for text. */
  get width(): number {
    return this.live ? Math.min(MOST_COLUMNS, (this.#out.columns || 80) - 1) : MOST_COLUMNS
  }

  /** Adds lines that stay. */
  log(...lines: readonly string[]): void {
    this.#write(`${this.#erase()}${lines.join("\n")}\n`)
  }

  /** Draws the table below what stays; nothing where the screen is not a terminal. */
  draw(agents: readonly Agent[]): void {
    if (!this.live || agents.length === 0) return
    const lines = ["", ...agents.map((agent) => this.row(agent)), this.#bar(agents), ""]
    this.#write(`${HIDE_CURSOR}${this.#erase()}${lines.join("\n")}\n`)
    this.#drawn = lines.length
  }

  /** Takes the table away and gives the cursor back. */
  close(): void {
    if (this.live) this.#write(`${this.#erase()}${SHOW_CURSOR}`)
  }

  /** One agent: icon, description, phase, time, tool calls, cost, last tool; cut to the width. */
  row(agent: Agent): string {
    const now = Date.now()
    const [icon, style] = ICONS[agent.status] ?? [SPINNER[Math.floor(now / FRAME_MS) % SPINNER.length] ?? "", "cyan"]
    const phase = agent.endedAt === undefined && !ICONS[agent.status] ? agent.phase : agent.status
    const time = duration(Math.max(0, (agent.endedAt ?? now) - agent.startedAt))
    const calls = `${agent.calls.size} tool call${agent.calls.size === 1 ? "" : "s"}`
    const cells = [
      agent.description.padEnd(18),
      phase.padEnd(22),
      time.padStart(5),
      calls.padStart(12),
      dollars(agent.usage.cost).padStart(7),
    ]
    const text = `${cells.join("  ")}   ${agent.endedAt === undefined ? agent.lastTool : ""}`.trimEnd()
    return `  ${this.paint(style, this.live ? icon : (ICONS[agent.status]?.[0] ?? "·"))} ${text.slice(0, this.width - 4)}`
  }

  #bar(agents: readonly Agent[]): string {
    const done = agents.filter(({ status }) => ICONS[status]).length
    const filled = Math.round((done / agents.length) * BAR_CELLS)
    const bar = this.paint("green", "█".repeat(filled)) + this.paint("dim", "░".repeat(BAR_CELLS - filled))
    return `    ${bar}  ${done}/${agents.length}`
  }

  #erase(): string {
    const lines = this.#drawn
    this.#drawn = 0
    return lines > 0 ? `\u001B[${lines}A\r\u001B[J` : ""
  }

  #write(text: string): void {
    this.#out.write(text)
  }
}

/** What it all cost, in one line. */
export function bill(parent: Usage, agents: readonly Agent[]): string {
  const sum = (usages: readonly Usage[]) => ({
    tokens: usages.reduce((total, { tokens }) => total + tokens, 0),
    cost: usages.reduce((total, { cost }) => total + cost, 0),
  })
  const text = ({ tokens, cost }: Usage) => `${tokens.toLocaleString("en")} tokens, ${dollars(cost)}`
  const theirs = sum(agents.map(({ usage }) => usage))
  return `It took ${text(sum([parent, theirs]))}: the agents ${text(theirs)}; the parent ${text(parent)}.`
}

const dollars = (cost: number): string => `$${cost.toFixed(4)}`

/** A text behind a bar, so that it is seen where it begins and ends; long lines go on in the next. */
export function quoted(text: string, width: number): string[] {
  return text.split("\n").flatMap((line) => wrap(line, width - 4).map((piece) => `  │ ${piece}`.trimEnd()))
}

function wrap(line: string, width: number): string[] {
  if (line.length <= width) return [line]
  const space = line.lastIndexOf(" ", width)
  const end = space > 0 ? space : width
  return [line.slice(0, end), ...wrap(line.slice(end).trimStart(), width)]
}
