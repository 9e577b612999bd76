import { winnerIn } from "../group.ts"
import type { CheckResult } from "../receipt.ts"
import type { ActiveRun } from "./active-run.ts"
import { end, fail } from "./ending.ts"
import type { MachineCommand, MachineStep, RunContext } from "./inputs.ts"
import type { Handler } from "./steps.ts"
import { stay } from "./steps.ts"

/** Starts, stops or ends members according to their results. */
export function superviseMembers(run: ActiveRun, context: RunContext): MachineStep {
  const { group } = context.task
  if (!group || winnerIn(group) !== undefined) return stay(run)
  const { begin, winner, passed, ending, until } = context.nextMembers(run)
  if (ending) return end(run, ending, {}, context)
  if (winner === undefined) return createMembers({ ...run, warmUpUntil: until }, begin)
  const { generation } = run
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

function createMembers(run: ActiveRun, begin: readonly number[]): MachineStep {
  const commands = begin.map((nth): MachineCommand => ({ do: "create member", nth, text: run.prompt ?? "" }))
  return { run: { ...run, creatingMembers: [...run.creatingMembers, ...begin] }, commands }
}

export const members: Handler<"members"> = (run, _input, context) => superviseMembers(run, context)

/** A member that could not be created ends the group: the next would fail alike. */
export const memberCreated: Handler<"member created"> = (given, { nth, problem }, context) => {
  const run = { ...given, creatingMembers: given.creatingMembers.filter((each) => each !== nth) }
  if (problem === undefined) return superviseMembers(run, context)
  return fail(run, { code: "host", text: `Part ${nth + 1} could not be begun: ${problem}` }, context)
}
