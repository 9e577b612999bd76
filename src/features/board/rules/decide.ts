import { BoardError } from "../service.ts"
import { type BoardState, isUnverified } from "../state.ts"
import type { BoardChange, BoardCommand, BoardFacts } from "./command.ts"
import { openTask } from "./common.ts"
import { accept, forget, restore } from "./person.ts"
import { closePurse, endPurse, openPurse, pay, purseEnded, recordReportDelivery } from "./purse.ts"
import { notify, recordRefusals, recordRunEnd, recordUserMessage, run, setThread, settle, tick } from "./runs.ts"
import { addResource, createSubtask, removeResource, replacePlan, updateStep } from "./steps.ts"
import { create, end, update } from "./tasks.ts"

/** The only function that changes a board. Pure; forbidden changes throw a `BoardError` with their reason. */
export function decide(state: BoardState, command: BoardCommand, facts: BoardFacts): BoardChange {
  refuseOutside(state, command)
  switch (command.type) {
    case "create":
      return create(state, command, facts)
    case "update":
      return update(state, command, facts)
    case "complete":
      return end(state, openTask(state, command.id, facts), "done", command.by, facts)
    case "cancel":
      return end(state, openTask(state, command.id, facts), "canceled", command.by, facts)
    case "update steps":
      return replacePlan(state, command, facts)
    case "update step":
      return updateStep(state, command, facts)
    case "create subtask":
      return createSubtask(state, command, facts)
    case "add resource":
      return addResource(state, command, facts)
    case "remove resource":
      return removeResource(state, command, facts)
    case "notify":
      return notify(state, command)
    case "written":
      return recordUserMessage(state, command.threadId)
    case "thread":
      return setThread(state, command.id, command.threadId)
    case "run":
      return run(state, command.id, facts)
    case "accept":
      return accept(state)
    case "restore":
      return restore(state)
    case "forget":
      return forget(state)
    case "ran":
      return recordRunEnd(state, command, facts)
    case "refused":
      return recordRefusals(state, command.reasons)
    case "tick":
      return tick(state, facts)
    case "open purse":
      return openPurse(state, command, facts)
    case "close purse":
      return closePurse(state, command)
    case "pay":
      return pay(state, command)
    case "end purse":
      return endPurse(state, command, facts)
    case "purse ended":
      return purseEnded(state, command)
    case "purse told":
      return recordReportDelivery(state)
    case "settle":
      return settle(state, command.archived, facts)
  }
}

/** Agents may not change unverified tasks: the next signed write would make them trusted. */
function refuseOutside(state: BoardState, command: BoardCommand): void {
  if (!("id" in command && "by" in command) || command.by.kind === "user" || !isUnverified(state, command.id)) return
  throw new BoardError(
    "conflict",
    `Task #${command.id} was changed outside the board: somebody has written to its file. A person has to look at it and start it; until then it can be read, and no more.`,
  )
}
