import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { QuestionInfo } from "@opencode-ai/sdk/v2"
import { messageOf } from "../../core/errors.ts"
import { answerText } from "../../core/outcome.ts"
import type { AskOptions, Reply } from "../../core/ports.ts"
import type { Ask } from "../../core/task.ts"
import { toError, toMessage } from "../../opencode/convert.ts"
import { REQUEST_KEY, type RemoteAsk } from "../../runtime/record/codec.ts"
import type { ObservedTask } from "./view-model.ts"

/** Makes a function that does some work. Undefined if the work failed, which is shown as a toast. */
export const attempting =
  ({ ui }: TuiPluginApi) =>
  async <Result>(what: string, work: () => Promise<Result>): Promise<Result | undefined> => {
    try {
      return await work()
    } catch (error) {
      ui.toast({ variant: "error", title: `Could not ${what}`, message: messageOf(error) })
      return undefined
    }
  }

export type Actions = ReturnType<typeof createActions>

/** A user's actions on tasks. They never reject: a failure is shown as a toast. */
export function createActions(api: TuiPluginApi) {
  const requests = createRequests(api)

  const attempt = attempting(api)

  /** Sends a request to the server plugin. True once the request is written. */
  const requested = (sessionID: string, request: Request) =>
    attempt(request.action === "answer" ? "answer" : `${request.action} the task`, async () => {
      await requests.send(sessionID, request)
      return true
    })

  /** Answers a question. The server plugin answers those of remote tasks, which this OpenCode does not know. */
  const answered = (ask: Ask, reply: Reply, here: (where: { directory: string }) => Parameters<typeof dataOf>[0]) =>
    offersOf(ask)
      ? requested(ask.sessionID, { action: "answer", ask: ask.id, reply })
      : attempt("answer", async () => dataOf(here(await whereOf(api, ask))))

  return {
    request: requested,

    replyTo: (ask: Ask, reply: "once" | "always" | "reject") =>
      answered(ask, { reply }, (where) => api.client.permission.reply({ ...where, requestID: ask.id, reply })),

    /** `answers`: for each question, the labels that the user has chosen. */
    answer: (ask: Ask, answers: string[][]) =>
      answered(ask, { answers }, (where) => api.client.question.reply({ ...where, requestID: ask.id, answers })),

    refuse: (ask: Ask) =>
      answered(ask, { dismiss: true }, (where) => api.client.question.reject({ ...where, requestID: ask.id })),

    /** The contents of a question. Undefined where the question is no longer open. */
    questionsOf: (ask: Ask): Promise<readonly QuestionInfo[] | undefined> =>
      attempt("read the question", async () => {
        const offers = offersOf(ask)
        if (offers) return offers.kind === "question" ? copied(offers.questions) : undefined
        const open = await dataOf(api.client.question.list(await whereOf(api, ask)))
        return open.find(({ id }) => id === ask.id)?.questions
      }),

    /** Last text that the agent has written since the task's prompt. */
    textOf: ({ task }: ObservedTask) =>
      attempt("read the answer", async () => {
        const { sessionID } = task
        const messages = (await dataOf(api.client.session.messages({ sessionID }))).map(toMessage)
        return answerText(messages.filter(({ id }) => id >= task.run.promptID))
      }),

    dispose: requests.dispose,
  }
}

/** Folder of a session: OpenCode knows its questions only there. */
async function whereOf(api: TuiPluginApi, { sessionID }: Ask): Promise<{ directory: string }> {
  const { directory } = await dataOf(api.client.session.get({ sessionID }))
  return { directory }
}

/** Options of a remote task's question; undefined for local ones. */
const offersOf = (ask: Ask): AskOptions | undefined => (ask as Partial<RemoteAsk>).offers

const copied = (questions: Extract<AskOptions, { kind: "question" }>["questions"]): QuestionInfo[] =>
  questions.map((question) => ({ ...question, options: question.options.map((option) => ({ ...option })) }))

/** Written into the metadata of a task's session. The server plugin, which owns the tasks, removes them. */
type Request =
  | { readonly action: "cancel" | "clear"; readonly generation: number }
  | { readonly action: "unpark" }
  | { readonly action: "resume" | "tell"; readonly prompt: string }
  | { readonly action: "answer"; readonly ask: string; readonly reply: Reply }

/** If the server plugin has not answered after this time, the user is warned that it does not answer. In ms. */
const ANSWER_WITHIN_MS = 5000

type Metadata = Record<string, unknown>

/** Connection to the server plugin. */
function createRequests(api: TuiPluginApi) {
  const timers = new Set<ReturnType<typeof setTimeout>>()

  const editMetadata = async (sessionID: string, edit: (metadata: Metadata) => Metadata | undefined) => {
    const session = await dataOf(api.client.session.get({ sessionID }))
    const metadata = edit({ ...session.metadata })
    if (metadata) await dataOf(api.client.session.update({ sessionID, metadata }))
  }

  /** Removes an unanswered request. Otherwise the server plugin would carry it out when it starts later. */
  const withdraw = (sessionID: string, id: string) =>
    editMetadata(sessionID, ({ [REQUEST_KEY]: request, ...others }) => {
      if ((request as { id?: string } | undefined)?.id !== id) return undefined
      api.ui.toast({
        variant: "warning",
        title: "Nobody answers",
        message: "The plugin's server half does not run here, or another OpenCode runs this task.",
      })
      return others
    })

  return {
    /** Resolves once the request is written. Rejects with OpenCode's error. */
    async send(sessionID: string, request: Request): Promise<void> {
      const id = crypto.randomUUID()
      await editMetadata(sessionID, (metadata) => ({ ...metadata, [REQUEST_KEY]: { id, ...request } }))
      const timer = setTimeout(() => {
        timers.delete(timer)
        withdraw(sessionID, id).catch(() => {})
      }, ANSWER_WITHIN_MS)
      timer.unref?.()
      timers.add(timer)
    },

    dispose() {
      for (const timer of timers) clearTimeout(timer)
    },
  }
}

/** Data of a call. Throws the errors that the SDK would only return. */
async function dataOf<Data>(call: Promise<{ data?: Data; error?: unknown }>): Promise<Data> {
  const { data, error } = await call
  if (error !== undefined) throw new Error(toError(error).message)
  return data as Data
}
