import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import type { BoardCommand } from "../../src/features/board/rules/command.ts"
import { type BoardState, EMPTY } from "../../src/features/board/state.ts"
import { TrustedFile } from "../../src/features/board/store/files.ts"
import { Store } from "../../src/features/board/store/store.ts"
import { installationKey, processLives, processMark, signerOf } from "../../src/runtime/record/identity.ts"
import { callTool, eventually } from "./drive.ts"
import type { ModelRequest, Reply, ScriptedModel } from "./model.ts"
import { textOf } from "./model-request.ts"
import type { Opencode } from "./opencode.ts"

/** The board of a real OpenCode, as it stands in its files and as agents use it. */

type Stored = {
  id: string
  title: string
  status: string
  owner: string
  createdBy: string
  createdAt: string
  threadId: string
  steps: { title: string; done: boolean; taskId?: string }[]
}

export const boardFolder = (opencode: Opencode) => join(opencode.directory, ".opencode", "tasks")

export const boardFile = (opencode: Opencode): { tasks: Stored[]; nextId: number } =>
  JSON.parse(readFileSync(join(boardFolder(opencode), "tasks.json"), "utf8"))

const stateFolder = (opencode: Opencode) => join(opencode.home, "state", "opencode", "superagents")
const signerFor = (opencode: Opencode) =>
  signerOf(installationKey(join(opencode.home, "data", "opencode", "superagents")))

/** What the installation believes of a board. */
export function keptBoard(opencode: Opencode, folder = boardFolder(opencode)): BoardState {
  const { file } = new TrustedFile(stateFolder(opencode), folder, signerFor(opencode), () => {})
  return existsSync(file) ? JSON.parse(readFileSync(file, "utf8").split("\n")[1] ?? "").state : EMPTY
}

/** What the user does with a board, from another process: as the terminal does. */
export async function byHand(opencode: Opencode, command: BoardCommand, folder = boardFolder(opencode)): Promise<void> {
  const store = new Store({
    folder,
    project: opencode.directory,
    state: stateFolder(opencode),
    signer: signerFor(opencode),
    processes: { self: processMark, isAlive: processLives },
    now: Date.now,
    warn: () => {},
  })
  const agents = ["build", "general", "librarian"]
  await store.carryOut(command, { now: new Date().toISOString(), agents, isRunning: () => false })
}

/** The archived tasks, oldest first. */
export const historyFile = (opencode: Opencode): (Stored & { archivedAt: string; archivedBy: string })[] => {
  try {
    const text = readFileSync(join(boardFolder(opencode), "history.jsonl"), "utf8")
    return text.split("\n").flatMap((line) => (line === "" ? [] : JSON.parse(line)))
  } catch {
    return []
  }
}

export const stored = (opencode: Opencode, id: string): Stored => {
  const task = [...boardFile(opencode).tasks, ...historyFile(opencode)].find((each) => each.id === id)
  if (!task) throw new Error(`no task #${id}`)
  return task
}

/** Resolves with the task in history, when it is there. */
export const archived = (opencode: Opencode, id: string, timeout = 30_000) =>
  eventually(() => historyFile(opencode).find((task) => task.id === id), {
    timeout,
    message: () => `#${id} ends\n${opencode.logs()}`,
  })

/** Calls a tool of the board; a failed call throws its text. */
export const callBoard = async (
  opencode: Opencode,
  model: ScriptedModel,
  sessionID: string,
  name: string,
  args: object,
  agent?: string,
): Promise<string> => {
  const { output, error } = await callTool(opencode, model, sessionID, `tasks_${name}`, args, { agent })
  if (output === undefined) throw new Error(error)
  return output
}

/** The id that a tool's answer names first. */
export const idIn = (text: string): string => /#(\d+)/.exec(text)?.[1] ?? ""

/** The id of the task in whose thread a request is made, from its block. */
export const taskOf = (request: ModelRequest): string | undefined => /<Task id="(\d+)">/.exec(request.system)?.[1]

/** The block alone. */
export const blockOf = (request: ModelRequest): string => {
  const block = /<Task id=[\s\S]*<\/Task>/.exec(request.system)?.[0] ?? ""
  const now = /^<TaskNow [^\n]*\n[^\n]*\n\n([\s\S]*)\n<\/TaskNow>$/.exec(textOf(request.messages.at(-1)?.content))?.[1]
  return now === undefined
    ? block
    : now.split(/\n\n(?=#\d|Status: |Description:|Steps \(|Resources \()/).reduce(replaced, block)
}

/** The block with a section as it is by now. */
const replaced = (block: string, section: string): string => {
  const [title = ""] = section.split(/[\n ]/, 1)
  const lines =
    title.startsWith("#") || title === "Status:"
      ? `${title} [^\\n]*`
      : `${title}[\\s\\S]*?(?=\\n\\n(?:Steps|Resources|This) )`
  return block.replace(new RegExp(`(?<=\\n)${lines}`), () => section)
}

/** How often the model has said something in a turn: what has changed in its task is told at the end of a request. */
export function saidIn({ messages }: ModelRequest): number {
  const isPrompt = ({ role, content }: (typeof messages)[number]) =>
    role === "user" && !JSON.stringify(content).includes("<TaskNow")
  return messages.slice(messages.findLastIndex(isPrompt)).filter(({ role }) => role === "assistant").length
}

export const call = (name: string, args: object): Reply => ({ tools: [{ name: `tasks_${name}`, args }] })
