import type { Prompt } from "../../src/core/ports.ts"
import type { Task } from "../../src/core/task.ts"

/** A call that the engine awaits. `site`: what it is for, in words; the same words for the same place in a life. */
export type Call = {
  readonly site: string
  readonly method: string
  readonly sessionID?: string
  /** Of which it is the n-th of this life, from 0. */
  readonly number: number
}

const MESSAGE = /^msg_[0-9a-f]{12}[a-z0-9]{8}([A-Z])/
const KINDS: Readonly<Record<string, string>> = {
  P: "its prompt",
  W: "a word",
  L: "the question for its last word",
  C: "that its check failed",
  H: "that one waits for an answer",
  N: "its news",
}

const WORDS: Readonly<Record<string, string>> = {
  createSession: "make a session",
  deleteSession: "delete a session",
  deleteMessage: "take a message back",
  abort: "stop a session",
  move: "move a session",
  refuse: "refuse a question",
  activity: "ask what is at work",
  openAsks: "ask for open questions",
  agents: "ask for agents",
  models: "ask for models",
  caller: "ask who calls",
  persona: "ask who speaks",
  hasMessage: "ask whether a message is there",
  isAnsweredElsewhere: "ask whether another process answers",
  openTodos: "ask for todos",
  clearRequest: "take a request away",
  recordsSince: "read all records",
  recordsOf: "read a session's records",
}

/** What a call is for. `isParent`: its session is one that tasks are launched from, and no task's own. */
export function siteOf(method: string, isParent: boolean, about: unknown): string {
  const whose = isParent ? "the parent's" : "a task's"
  switch (method) {
    case "prompt": {
      const { messageID, noReply } = about as Prompt
      const kind = KINDS[MESSAGE.exec(messageID)?.[1] ?? ""] ?? "something"
      return `tell ${isParent ? "the parent" : "a task"} ${kind}${noReply ? ", to be stored" : ""}`
    }
    case "saveRecord":
      return `write a record: ${(about as Task | undefined)?.status ?? "none"}`
    case "messagesSince":
    case "lastMessage":
      return `read ${whose} messages`
    case "session":
      return `read ${whose} session`
    default:
      return WORDS[method] ?? method
  }
}
