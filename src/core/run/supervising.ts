import type { ItemsPlan } from "../group.ts"
import { nextItems } from "../items.ts"
import type { CheckResult } from "../receipt.ts"
import { nextTries } from "../tries.ts"
import type { ActiveRun } from "./active-run.ts"
import { end, fail } from "./ending.ts"
import type { Command, Step, World } from "./inputs.ts"
import type { Handler } from "./steps.ts"
import { stay } from "./steps.ts"

/** Starts, stops or ends members according to their results. */
export function lead(run: ActiveRun, world: World): Step {
  const { group } = world.task
  if (group?.kind === "each") return leadItems(run, group, world)
  if (!group || group.winner) return stay(run)
  const { generation, creatingMembers: coming } = run
  const { begin, winner, passed, ending } = nextTries(group, world.members(), coming, generation)
  if (ending) return end(run, ending, {}, world)
  if (!winner) return fielding(run, begin)
  const event = { type: "won", generation, winner, ...(passed && { passed: withoutOutput(passed) }) } as const
  return {
    run,
    commands: [
      { do: "record", event, write: false },
      { do: "write", later: false },
    ],
  }
}

/** Output of a passed check is not kept. */
const withoutOutput = ({ output: _output, ...check }: CheckResult): CheckResult => check

function leadItems(run: ActiveRun, team: ItemsPlan, world: World): Step {
  const { generation, creatingMembers: coming, done } = run
  const course = { coming, done, generation, room: world.room(), now: world.now }
  const { begin, ending, until } = nextItems(team, world.members(), course)
  return ending ? end(run, ending, {}, world) : fielding({ ...run, warmUpUntil: until }, begin)
}

function fielding(run: ActiveRun, begin: readonly number[]): Step {
  const commands = begin.map((nth): Command => ({ do: "create member", nth, text: run.prompt ?? "" }))
  return { run: { ...run, creatingMembers: [...run.creatingMembers, ...begin] }, commands }
}

export const members: Handler<"members"> = (run, _input, world) => lead(run, world)

/** A member that could not be created ends the group: the next would fail alike. */
export const memberCreated: Handler<"member created"> = (given, { nth, problem }, world) => {
  const run = { ...given, creatingMembers: given.creatingMembers.filter((each) => each !== nth) }
  if (problem === undefined) return lead(run, world)
  return fail(run, { code: "host", text: `Part ${nth + 1} could not be begun: ${problem}` }, world)
}
