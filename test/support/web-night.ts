import type { GroupResult } from "../../src/core/group.ts"
import { NO_USAGE } from "../../src/core/task.ts"
import { MINUTE_MS } from "../../src/lib/format.ts"
import { type FakeAgents, viewOf } from "./fake-agents.ts"
import type { FakeBoard } from "./fake-board.ts"
import { outcomeOf } from "./tasks.ts"
import { workingDay } from "./web-scene.ts"

const FILE = "/home/me/beans/.opencode/superagents/bg_m4p6q8dd.jsonl"

/** The same day with all that a day can have beside: a map at work and one that has ended, tries, what is parked, a purse. */
export function fullDay(now = Date.now()): ReturnType<typeof workingDay> {
  const day = workingDay(now)
  presentTeams(day.agents, now)
  pastTeams(day.agents, now)
  purse(day.board, now)
  // What the rows come to.
  const cost = day.agents.list().reduce((sum, { whole }) => sum + whole.usage.cost, 0)
  day.person.spent = { ...NO_USAGE, cost }
  return day
}

function presentTeams(agents: FakeAgents, now: number): void {
  const base = { status: "running", agent: "explore" } as const
  agents.set(
    viewOf({
      task: {
        ...base,
        id: "bg_m4p6q8dd",
        sessionID: "ses_map",
        description: "Grade the recipes",
        group: { kind: "each", prompt: "Read {{item}}.", total: 1000, timeout: 0, file: FILE },
        run: { createdAt: now - 31 * MINUTE_MS, startedAt: now - 31 * MINUTE_MS },
      },
      phase: "working",
      counts: { valid: 412, failed: 3, running: 10, notBegun: 575, total: 1000 },
      toolCalls: 1286,
      signAge: 1000,
      usage: { input: 1_240_000, output: 61_000, cost: 1.7314 },
    }),
    viewOf({
      task: {
        ...base,
        id: "bg_p1z3v5ee",
        sessionID: "ses_parked",
        description: "Translate the descaling guide",
        agent: "librarian",
        model: { provider: "anthropic", id: "claude-haiku-4-5" },
        run: { createdAt: now - 25 * MINUTE_MS, startedAt: now - 25 * MINUTE_MS },
      },
      phase: "parked until 17:12",
      pause: { way: "parked", model: "anthropic/claude-haiku-4-5", until: now + 184 * MINUTE_MS } as never,
      toolCalls: 9,
      usage: { input: 21_000, output: 2300, cost: 0.0411 },
    }),
  )
}

function pastTeams(agents: FakeAgents, now: number): void {
  const ended = (id: string, description: string, group: GroupResult, minutes: number, reason?: string) =>
    viewOf({
      task: {
        id,
        sessionID: `ses_${id.slice(3)}`,
        description,
        agent: "general",
        batch: `auto:${id}`,
        status: reason === undefined ? "completed" : "error",
        group:
          group.kind === "tries"
            ? { kind: "tries", prompt: "Mend it.", count: 2, ladder: [], timeout: 0, winner: "bg_a2" }
            : { kind: "each", prompt: "Read {{item}}.", total: 40, timeout: 0, file: "" },
        run: {
          createdAt: now - minutes * MINUTE_MS,
          startedAt: now - minutes * MINUTE_MS,
          endedAt: now - (minutes - 14) * MINUTE_MS,
          ...(group.kind === "tries" && { check: "npm test" }),
        },
        outcome: outcomeOf({
          group,
          ...(reason !== undefined && { reason: { code: "items", text: reason } }),
          filesChanged: group.kind === "tries" ? ["src/parser.ts"] : [],
        }),
      },
      counts: group.kind === "each" ? undefined : { valid: 1, failed: 1, running: 0, notBegun: 0, total: 2 },
      toolCalls: 58,
      usage: { input: 96_000, output: 8800, cost: group.cost },
    })
  agents.set(
    ended("bg_t7r2y9ff", "Mend the parser", TRIES, 52),
    ended("bg_e5k8n1gg", "Summarise the tastings", ITEMS, 95, "3 of 40 items failed."),
  )
  agents.answers.set(
    "bg_t7r2y9ff",
    "The parser took `\\r\\n` for two lines. It takes it for one now, and a test says so.",
  )
  agents.answers.set(
    "bg_e5k8n1gg",
    '{"index":3,"item":"tasting-03.md","state":"failed","reason":"It ran longer than 5m."}',
  )
}

const TRIES: GroupResult = {
  kind: "tries",
  won: "anthropic/claude-opus-4-5",
  cost: 0.093,
  rows: [
    {
      model: "anthropic/claude-haiku-4-5",
      how: "check did not pass (exit code 1)",
      ms: 192_300,
      cost: 0.021,
      task: "bg_a1",
      session: "ses_5a1c0f3e2b7d4c6e",
      ref: "refs/superagents-cleared/bg_t7r2y9ff/1",
    },
    {
      model: "anthropic/claude-opus-4-5",
      how: "won",
      ms: 431_000,
      cost: 0.072,
      task: "bg_a2",
      session: "ses_5a1c0f3e2b7d4c6f",
    },
  ],
}

const ITEMS: GroupResult = {
  kind: "each",
  total: 40,
  valid: 37,
  failed: 3,
  notBegun: 0,
  cost: 0.412,
  file: FILE.replace("m4p6q8dd", "e5k8n1gg"),
  groups: [
    {
      why: "Its answer did not match the schema (asked 3 times; the last time: at /grade: …).",
      count: 2,
      first: [17, 31],
    },
    { why: "Stopped at its time limit of 5m (its timeout argument).", count: 1, first: [3] },
  ],
}

function purse(board: FakeBoard, now: number): void {
  const at = (minutes: number) => new Date(now + minutes * MINUTE_MS).toISOString()
  board.purseView = {
    max: 5,
    spent: 1.2,
    atLeast: false,
    openedAt: at(-120),
    until: at(352),
    atWork: 1,
    parked: 1,
    text: "$1.20 of $5.00 until 20:00, 1 at work, 1 parked",
  }
  board.reports = [
    {
      name: "2026-11-20T05-41Z",
      max: 5,
      until: at(-428),
      openedAt: at(-906),
      endedAt: at(-447),
      why: "nothing left",
      spent: 4.37,
      tasks: 8,
    },
  ]
}
