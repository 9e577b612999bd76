import {
  type ArchiveResult,
  type EnterRequest,
  PlaceError,
  type UnchosenMember,
} from "../../src/runtime/places/place.ts"
import type { CommandResult } from "../../src/runtime/places/process.ts"

const WORK: ArchiveResult = { files: ["a"], added: 1, removed: 0, submodules: [], unsaved: [] }

/** A machine of which nobody hears anything while it is cut off from these tasks. */
export class FakeMachine {
  readonly entered: string[] = []
  readonly settled: (string | undefined)[] = []
  /** Of these, with what is told of them. */
  cut: (taskID: string) => boolean = () => false
  /** What a try's check comes to; its number is from 1. */
  passes: (nth: number) => boolean = () => true

  /** What a try has changed of what is guarded; its number is from 1. */
  touches: (nth: number) => readonly string[] = () => []
  readonly cleared: string[] = []
  /** Where the sessions of its tasks are meanwhile; undefined for where their parent works. */
  directory: string | undefined

  readonly shared = {
    copyStart: async () => {},
    copyWork: async () => {},
    changedIn: async (taskID: string) => {
      const named = this.touches(this.entered.indexOf(taskID) + 1)
      return { files: named, named }
    },
    isCurrent: async () => true,
    settle: async (_folder: string, groupID: string, winner: string | undefined, others: readonly UnchosenMember[]) => {
      this.settled.push(winner)
      return new Map(others.map(({ taskID, name }) => [taskID, `refs/superagents-cleared/${groupID}/${name}`]))
    },
  }
  async capture() {}
  async enter({ taskID, folder }: EnterRequest) {
    this.entered.push(taskID)
    return { directory: this.directory ?? folder, preface: "You work on big." }
  }
  async run(taskID: string): Promise<CommandResult> {
    return { exitCode: this.passes(this.entered.indexOf(taskID) + 1) ? 0 : 1, output: "" }
  }
  async archive(taskID: string): Promise<ArchiveResult> {
    if (this.cut(taskID)) throw new PlaceError("big cannot be reached now.", "host")
    return WORK
  }
  async show() {
    return { ...WORK, diff: "+a", cut: false, command: "git diff" }
  }
  async merge() {
    return { kind: "merged", files: ["a"], submodules: [] } as const
  }
  async clear(_folder: string, taskIDs: readonly string[]) {
    this.cleared.push(...taskIDs)
    return []
  }
  async sweep() {
    return []
  }
  async expire() {
    return []
  }
}
