import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { QuestionInfo } from "@opencode-ai/sdk/v2"
import { messageOf } from "../core/errors.ts"
import type { Reply } from "../core/ports.ts"
import type { Ask } from "../core/task.ts"
import { answerText } from "../core/verdict.ts"
import { toError, toMessage } from "../host/opencode/convert.ts"
import type { Question } from "../host/person.ts"
import { REQUEST_KEY } from "../host/record/codec.ts"
import type { FarAsk } from "../host/record/signs.ts"
import type { Seen } from "./view-model.ts"

/**
 * What the companion has done. A task has one owner, the server half: a request is written into the metadata of the
 * task's session, where the server half hears of it, carries it out and takes it away.
 */
export type Request =
  | { readonly action: "cancel" }
  | { readonly action: "clear" }
  | { readonly action: "unpark" }
  | { readonly action: "resume" | "tell"; readonly prompt: string }
  | { readonly action: "answer"; readonly ask: string; readonly reply: Reply }

/** How long the server half may take before the user is told that nobody listens. */
const ANSWER_WITHIN_MS = 5000

export type Actions = ReturnType<typeof createActions>

/** None of them rejects: what fails is told in a toast. */
export function createActions(api: TuiPluginApi) {
  const timers = new Set<ReturnType<typeof setTimeout>>()

  const attempt = async <Result>(what: string, work: () => Promise<Result>): Promise<Result | undefined> => {
    try {
      return await work()
    } catch (error) {
      api.ui.toast({ variant: "error", title: `Could not ${what}`, message: messageOf(error) })
      return undefined
    }
  }

  const editMetadata = async (sessionID: string, edit: (metadata: Metadata) => Metadata | undefined) => {
    const session = await dataOf(api.client.session.get({ sessionID }))
    const metadata = edit({ ...session.metadata })
    if (metadata) await dataOf(api.client.session.update({ sessionID, metadata }))
  }

  /** A request that is still there has not been heard: it is taken away, lest a later start carries it out. */
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

  const later = (work: () => Promise<void>) => {
    const timer = setTimeout(() => {
      timers.delete(timer)
      work().catch(() => {})
    }, ANSWER_WITHIN_MS)
    timer.unref?.()
    timers.add(timer)
  }

  /** The folder in which a session works: the host knows its questions there alone. */
  const whereOf = async ({ sessionID }: Ask) => {
    const { directory } = await dataOf(api.client.session.get({ sessionID }))
    return { directory }
  }

  /** True once it is written. */
  const requested = (sessionID: string, request: Request) =>
    attempt(request.action === "answer" ? "answer" : `${request.action} the task`, async () => {
      const id = crypto.randomUUID()
      await editMetadata(sessionID, (metadata) => ({ ...metadata, [REQUEST_KEY]: { id, ...request } }))
      later(() => withdraw(sessionID, id))
      return true
    })

  /** A question of an agent on another machine is answered by the server half: this host does not know it. */
  const answered = (ask: Ask, reply: Reply, here: (where: { directory: string }) => Parameters<typeof dataOf>[0]) =>
    offersOf(ask)
      ? requested(ask.sessionID, { action: "answer", ask: ask.id, reply })
      : attempt("answer", async () => dataOf(here(await whereOf(ask))))

  return {
    request: requested,

    replyTo: (ask: Ask, reply: "once" | "always" | "reject") =>
      answered(ask, { reply }, (where) => api.client.permission.reply({ ...where, requestID: ask.id, reply })),

    /** One list of chosen labels a question. */
    answer: (ask: Ask, answers: string[][]) =>
      answered(ask, { answers }, (where) => api.client.question.reply({ ...where, requestID: ask.id, answers })),

    refuse: (ask: Ask) =>
      answered(ask, { dismiss: true }, (where) => api.client.question.reject({ ...where, requestID: ask.id })),

    /** What the child asks; undefined where the question is no longer open. */
    questionsOf: (ask: Ask): Promise<readonly QuestionInfo[] | undefined> =>
      attempt("read the question", async () => {
        const offers = offersOf(ask)
        if (offers) return offers.kind === "question" ? copied(offers.questions) : undefined
        const open = await dataOf(api.client.question.list(await whereOf(ask)))
        return open.find(({ id }) => id === ask.id)?.questions
      }),

    /** The last text since the task's prompt. */
    textOf: ({ task }: Seen) =>
      attempt("read the answer", async () => {
        const { sessionID } = task
        const messages = (await dataOf(api.client.session.messages({ sessionID }))).map(toMessage)
        return answerText(messages.filter(({ id }) => id >= task.run.promptID))
      }),

    dispose: () => {
      for (const timer of timers) clearTimeout(timer)
    },
  }
}

/** What may be answered to a question of an agent on another machine; undefined for any other. */
const offersOf = (ask: Ask): Question | undefined => (ask as Partial<FarAsk>).offers

const copied = (questions: Extract<Question, { kind: "question" }>["questions"]): QuestionInfo[] =>
  questions.map((question) => ({ ...question, options: question.options.map((option) => ({ ...option })) }))

type Metadata = Record<string, unknown>

/** SDK calls do not throw by themselves. */
async function dataOf<Data>(call: Promise<{ data?: Data; error?: unknown }>): Promise<Data> {
  const { data, error } = await call
  if (error !== undefined) throw new Error(toError(error).message)
  return data as Data
}
