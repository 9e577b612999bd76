import { setTimeout as sleep } from "node:timers/promises"
import { openSession } from "../../test/support/drive.ts"
import { gate } from "../../test/support/plugin.ts"
import { type Case, collector } from "../support/case.ts"
import { type Bench, least, native, superagents, withBenches } from "../support/contender.ts"
import { againstLeast, atMostPlus, atMostTimes, type Row } from "../support/rows.ts"
import { childAskedAt, handOver, jobsOf, toldOf } from "../support/turn.ts"

/** How long the parent is idle before its child ends. */
const PAUSE_MS = 200
/** Turns with a launch in one session: the first one finds a session of which nothing is known. */
const TURNS = 4

/** One task at a time, on warm hosts by turns: launch, turn, start of the child, news of its end. */
export const launchCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  for (let run = 1; run <= runs; run++) {
    await withBenches([native, superagents(built.folder), least], async (benches) => {
      for (let round = 1; round <= (short ? 1 : 4); round++) {
        progress(`launch: run ${run} of ${runs}, session ${round}`)
        const sessions = await Promise.all(benches.map(({ opencode }) => openSession(opencode)))
        for (let turn = 0; turn < (short ? 2 : TURNS); turn++)
          for (const [index, bench] of benches.entries()) await one(bench, sessions[index] ?? "", turn === 0, found.add)
      }
    })
  }
  return rowsOf(found)
}

async function one(bench: Bench, sessionID: string, first: boolean, add: ReturnType<typeof collector>["add"]) {
  const door = gate()
  const remove = bench.model.use(async ({ lastUser }) => {
    if (!lastUser.startsWith("Do job-")) return undefined
    await door.opened
    return { text: "done" }
  })
  const turn = await handOver(bench, sessionID, jobsOf(1))
  const [launched] = turn.launched
  if (!launched) return
  await childAskedAt(bench, launched.child)
  await sleep(PAUSE_MS)
  door.open()
  const side = bench.contender.name
  const told = await toldOf(bench, turn)
  remove()
  add(first ? FIRST : FURTHER, side, launched.ms)
  add(TURN, side, turn.idleAt - turn.saidAt)
  add(STEP, side, turn.shownAt - turn.askedAt)
  add(CHILD, side, (await childAskedAt(bench, launched.child)) - launched.startedAt)
  add(STORED, side, told.storedAt - told.childEndedAt)
  add(ASKED, side, told.askedAt - told.childEndedAt)
}

const FIRST = "launch: the tool call, first in a session"
const FURTHER = "launch: the tool call, further ones"
const TURN = "the parent's turn with one launch"
const STEP = "one launch, from model to model"
const CHILD = "launch → the child's first model request"
const STORED = "child's end → the parent's message stored"
const ASKED = "child's end → the parent's model asked"

const GOALS = {
  [FIRST]: atMostTimes(3),
  [FURTHER]: atMostTimes(3),
  [TURN]: atMostTimes(1.15),
  [STEP]: undefined,
  [CHILD]: atMostTimes(1.1),
  [STORED]: atMostPlus(12, "ms"),
  [ASKED]: atMostTimes(1.15),
}

/** What OpenCode's calls cost whatever plugin makes them. */
const OF_ANY_PLUGIN = [TURN, CHILD, STORED, ASKED]

const rowsOf = (found: ReturnType<typeof collector>): Row[] =>
  Object.entries(GOALS).flatMap(([figure, goal]) => {
    const row: Row = { case: "launch", figure, unit: "ms", ...found.of(figure), goal }
    return OF_ANY_PLUGIN.includes(figure) ? [row, againstLeast(row, found.least(figure))] : [row]
  })
