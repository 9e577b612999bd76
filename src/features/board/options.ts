import { isAbsolute, normalize } from "node:path"
import { z } from "zod"
import { budget } from "../../lib/format.ts"
import {
  count,
  type MergeRule,
  option,
  part,
  projectWins,
  stricter,
  TO_ALLOW,
  type ValuesOf,
} from "../../options/spec.ts"

/** Tools of the board, for conversations and threads only; tasks never get them. */
export const BOARD_TOOLS = "tasks_*"

export const DEFAULT_SCHEDULE = "0 6-21 * * *"

export const TIME_OF_DAY = /^([01]?\d|2[0-3]):([0-5]\d)$/
const timeOfDay = () => z.string().regex(TIME_OF_DAY, 'must be a time of day such as "22:00"')

/** Most money of a purse, in US dollars. A greater amount is taken for a typing error. */
const MOST_USD = 1_000_000

export function purseMoney() {
  const error = "must be an amount of US dollars over 0 and of at most 1,000,000, such as 5"
  return z.number(error).gt(0, error).max(MOST_USD, error)
}

const leavesProject = (folder: string): boolean => isAbsolute(folder) || /^\.\.([/\\]|$)/.test(normalize(folder))

/**
 * A project's configuration cannot put the board's files outside the project. Only the user's own configuration can.
 */
const inProject: MergeRule = {
  ...projectWins,
  restrict(own, theirs) {
    if (!leavesProject(theirs as string) || theirs === own) return { allowed: theirs, refused: [] }
    const refused = `This project's configuration puts the board's files outside of the project: option "board.dir" is ${JSON.stringify(theirs)}. It is left out, so they lie where they do without it. Only your own configuration can name such a folder. ${TO_ALLOW}`
    return { allowed: undefined, refused: [refused] }
  },
}

/** Merge of two lists: only entries of both stay. `null` stands for all entries. */
const inBoth: MergeRule = {
  merge(own, theirs) {
    if (own === null || theirs === null) return own ?? theirs
    return (own as string[]).filter((each) => (theirs as string[]).includes(each))
  },
}

type Purse = { readonly from: string; readonly until: string; readonly max: number }

/** Merge of two purses: the project's applies, with no more money than the user's own has. */
const withLessMoney: MergeRule = {
  merge: (own, theirs) => ({ ...(theirs as Purse), max: Math.min((own as Purse).max, (theirs as Purse).max) }),
  turnsOn(own, theirs, name) {
    const { from, until, max } = theirs as Purse
    return own === undefined ? `${name}: ${budget(max)} each night from ${from} until ${until}` : undefined
  },
}

export const options = {
  board: part(
    "The board: tasks with steps, subtasks and threads of their own. Off unless it is there; {} turns it on.",
    {
      dir: option(
        () => z.string().min(1),
        ".opencode/tasks",
        "Where the board's files lie: relative to the project. A folder outside of it counts from your own configuration alone.",
        inProject,
      ),
      agents: option(
        () => z.array(z.string().min(1)).nullable(),
        null,
        "The agents that may own tasks, and are offered the board's tools. null: all that are not hidden.",
        inBoth,
      ),
      schedule: option(
        () => z.string().min(1),
        DEFAULT_SCHEDULE,
        "When the owners of active tasks are woken: a cron pattern, in local time.",
        projectWins,
      ),
      maxConcurrentRuns: option(count, 3, "Tasks of the board that are worked on at once.", stricter),
      purse: option(
        () => z.strictObject({ from: timeOfDay(), until: timeOfDay(), max: purseMoney() }).optional(),
        undefined,
        'Opens a purse each night, which is money for tasks of the board within a time: {"from": "22:00", "until": "07:00", "max": 5}, in local time and US dollars.',
        withLessMoney,
      ),
    },
  ),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

export type BoardOptions = NonNullable<ValuesOf<typeof options>["board"]>
