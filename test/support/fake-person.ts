import type { AskOptions, Reply } from "../../src/core/ports.ts"
import type { Ask, Usage } from "../../src/core/task.ts"
import type { MessageToSession } from "../../src/features/web/opencode/sessions.ts"
import type { Limits, PageUserActions, ToolCallResult } from "../../src/features/web/ports.ts"

const NO_LIMITS: Limits = {
  maxCostPerDay: 0,
  maxCostPerTask: 0,
  maxTokensPerTask: 0,
  resumable: ["completed"],
  allowModelOverride: true,
}

/** A person's hand that writes down what is done with it. */
export class FakePerson implements PageUserActions {
  readonly questions = new Map<string, AskOptions>()
  readonly replies: { readonly ask: string; readonly reply: Reply }[] = []
  readonly calls: { readonly args: Readonly<Record<string, unknown>>; readonly session: string }[] = []
  readonly written: MessageToSession[] = []
  readonly cleared: string[] = []
  readonly sessions = new Map<string, { title: string; folder: string }>()
  limits: Limits = NO_LIMITS
  /** What a call does, and comes to. */
  onCall: (args: Readonly<Record<string, unknown>>, session: string) => ToolCallResult = () => ({
    taskID: "",
    text: "",
  })
  /** Called when a question was answered. */
  onAnswer: (ask: Ask) => void = () => {}
  #opened = 0

  question = async ({ id }: Ask) => this.questions.get(id)

  answer = async (ask: Ask, reply: Reply) => {
    if (!this.questions.delete(ask.id)) return false
    this.replies.push({ ask: ask.id, reply })
    this.onAnswer(ask)
    return true
  }

  call = async (args: Readonly<Record<string, unknown>>, session: string) => {
    this.calls.push({ args, session })
    return this.onCall(args, session)
  }

  clear = async (session: string) => {
    this.cleared.push(session)
    return "Cleared."
  }

  conversations = async () => [...this.sessions].map(([id, { title }], at) => ({ id, title, updatedAt: at }))
  session = async (id: string) => this.sessions.get(id)

  open = async (title: string) => {
    const id = `ses_opened${++this.#opened}`
    this.sessions.set(id, { title, folder: "" })
    return id
  }

  discard = async (id: string) => void this.sessions.delete(id)
  write = async (word: MessageToSession) => void this.written.push(word)
  agents: PageUserActions["agents"] = async () =>
    ["build", "explore"].map((name) => ({ name, description: "", mode: "all" as const }))
  models = async () => ["mock/one", "mock/two"]
  spent: Usage | undefined
  spentToday = () => this.spent
}
