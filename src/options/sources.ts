import { isAbsolute, normalize } from "node:path"
import { isDeepStrictEqual } from "node:util"
import type { z } from "zod"
import { budget } from "../lib/money.ts"
import { complete, DEFAULTS, type Given, GROUPS, type Options, OptionsSchema, readOptions } from "./options.ts"
import { meets } from "./rules.ts"

/**
 * How a user's own options meet those of a project. OpenCode gives a plugin the options of one entry alone, the
 * project's where it has one; what the user allows everywhere would be gone without a word.
 */
export type Met = {
  readonly options: Options
  readonly problems: readonly string[]
  /** What the project alone turns on, by name. */
  readonly turnedOn: readonly string[]
  /** The limits that the project sets wider than they are by default, where the user sets none. */
  readonly widened: readonly string[]
  /** What the project set and only its user may set: one sentence each. It does not hold. */
  readonly refused: readonly string[]
  /** The user's limits that hold against the project's, one line each. */
  readonly held: readonly string[]
}

/**
 * The options that hold. `own`: the user's, undefined where there are none; `project`: undefined where the project has
 * none of its own.
 */
export function meet(own: unknown, project: unknown): Met {
  const mine = readOptions(own)
  const other = readOptions(project, own === undefined ? undefined : complete(mine.given))
  const held: string[] = []
  const { allowed, refused } = sift(mine.given, other.given)
  const options = complete(met(OptionsSchema.shape, mine.given, allowed, "", held))
  const problems = [...mine.problems, ...other.problems]
  const changed = {
    turnedOn: turnedOn(mine.given, allowed),
    widened: widened(OptionsSchema.shape, mine.given, allowed, DEFAULTS),
  }
  return { options, problems, ...changed, refused, held }
}

/** Takes out of a project's options what would run as its user, or write outside of it, with nobody but it asking. */
function sift(own: Given, project: Given): { readonly allowed: Given; readonly refused: readonly string[] } {
  const refused: string[] = []
  const { hosts, ...others } = project
  const allowed: Record<string, unknown> = others
  const mine = (own.hosts ?? {}) as Given
  const known = Object.entries((hosts ?? {}) as Given).filter(([name]) => Object.hasOwn(mine, name))
  if (known.length > 0) allowed.hosts = Object.fromEntries(known)
  for (const name of Object.keys((hosts ?? {}) as Given))
    if (!Object.hasOwn(mine, name))
      refused.push(
        `This project's configuration names the host "${name}" (option "hosts"). It is left out: a host is reached by a command that runs as you, so only your own configuration can name one. ${TO_ALLOW}`,
      )
  const board = allowed.board as Given | undefined
  const dir = board?.dir as string | undefined
  if (board && dir !== undefined && isUnverified(dir) && dir !== (own.board as Given | undefined)?.dir) {
    const { dir: _outside, ...rest } = board
    allowed.board = rest
    refused.push(
      `This project's configuration puts the board's files outside of the project: option "board.dir" is ${JSON.stringify(dir)}. It is left out, so they lie where they do without it. Only your own configuration can name such a folder. ${TO_ALLOW}`,
    )
  }
  return { allowed, refused }
}

const TO_ALLOW =
  "If you want it, write it into the options of opencode-superagents in ~/.config/opencode/opencode.json."

const isUnverified = (folder: string): boolean => isAbsolute(folder) || /^\.\.([/\\]|$)/.test(normalize(folder))

type Shape = Readonly<Record<string, z.ZodType>>

function met(shape: Shape, own: Given, project: Given, path: string, held: string[]): Given {
  const result: Record<string, unknown> = { ...own, ...project }
  for (const [key, schema] of Object.entries(shape)) {
    const [mine, other] = [own[key], project[key]]
    if (mine === undefined || other === undefined) continue
    const rule = meets.get(schema)
    if (rule) {
      result[key] = rule.meet(mine, other)
      const told = `${path}${key}: your ${JSON.stringify(mine)} holds, not the project's ${JSON.stringify(other)}`
      if (!isDeepStrictEqual(result[key], other)) held.push(told)
    } else result[key] = met(GROUPS[key]?.shape ?? {}, mine as Given, other as Given, `${key}.`, held)
  }
  return result
}

function widened(shape: Shape, own: Given, project: Given, byDefault: Given, path = ""): string[] {
  return Object.entries(shape).flatMap(([key, schema]) => {
    const [mine, other] = [own[key], project[key]]
    if (other === undefined) return []
    const group = GROUPS[key]
    if (path === "" && group)
      return widened(group.shape, (mine ?? {}) as Given, other as Given, group.parse({}) as Given, `${key}.`)
    return mine === undefined && meets.get(schema)?.widens?.(other, byDefault[key]) ? [`${path}${key} ${other}`] : []
  })
}

type Purse = { readonly max: number } | undefined

/** What only the project has switched on: a purse that spends its user's money, a switch that is off for the user, a command, or a part of the plugin. */
function turnedOn(own: Given, project: Given): string[] {
  const switches = ["enabled", "allowModelOverride"].filter((key) => own[key] === false && project[key] === true)
  const parts = ["board", "web"].filter((key) => own[key] === undefined && project[key] !== undefined)
  const [mine, other] = [own, project].map(({ worktree }) => (worktree as Given | undefined)?.setup ?? "")
  const [purse, nightly] = [own, project].map(({ board }) => (board as Given | undefined)?.purse) as [Purse, Purse]
  const night = nightly && !purse ? [`board.purse: ${budget(nightly.max)} each night`] : []
  const exact = own.gate === undefined && project.gate === "exact" ? ["gate: exact"] : []
  return [...switches, ...exact, ...parts, ...night, ...(other !== "" && other !== mine ? ["worktree.setup"] : [])]
}
