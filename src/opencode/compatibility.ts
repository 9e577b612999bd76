import { isNews } from "../runtime/record/notices.ts"
import type { Transport } from "./client.ts"
import type { OpencodeConnection } from "./connect.ts"

/** Versions covered by the end-to-end tests (`npm run test:versions`). */
const TRIED = { from: "1.18.28", to: "1.18.34" }
/** Before this version, a message stored during a turn starts no further step. */
const WAKES_BUSY_FROM = "1.18.15"

/** Warning for an untested version; undefined for tested ones and for development builds. */
export function versionNote(version: string): string | undefined {
  if (!isRelease(version) || isTried(version)) return undefined
  const note = `superagents was tried on OpenCode ${TRIED.from} to ${TRIED.to}; this is ${version}.`
  if (!isBefore(version, WAKES_BUSY_FROM)) return note
  return `${note} Before ${WAKES_BUSY_FROM} a notification may not wake an agent that is at work.`
}

const isTried = (version: string): boolean =>
  isRelease(version) && !isBefore(version, TRIED.from) && !isBefore(TRIED.to, version)

const isRelease = (version: string): boolean => /^\d+\.\d+\.\d+/.test(version)

export function isBefore(one: string, other: string): boolean {
  const [ones, others] = [one, other].map((version) => version.split(/[.-]/).slice(0, 3).map(Number))
  const differs = ones?.findIndex((number, index) => number !== others?.[index]) ?? -1
  return differs >= 0 && (ones?.[differs] ?? 0) < (others?.[differs] ?? 0)
}

/** Entry point that OpenCode 2 calls instead of `server`. OpenCode 1.x calls it too, with another context. */
export function setup(context?: { readonly app?: { readonly version?: unknown } }): void {
  const version = context?.app?.version
  if (typeof version !== "string" || !isRelease(version) || isBefore(version, "2.0.0")) return
  throw new Error(
    "superagents runs on OpenCode 1.18 and 1.19. On OpenCode 2, use its own subagents: they run in the background.",
  )
}

/** An id that no session has, so that calls with it have no effect. */
const NO_SESSION = "ses_00000000000000000000000000"
const LIMIT_MS = 10_000

/** Routes without which the plugin cannot work, with calls that change nothing. */
const NEEDED = [
  "GET /experimental/session",
  "GET /session/status",
  "GET /session/:id/children",
  "GET /session/:id/message",
  "PATCH /session/:id",
  "GET /permission",
  "GET /question",
] as const

/**
 * Routes that this OpenCode lacks; never rejects. OpenCode answers an unknown route with the web page, so a route
 * exists if its answer is JSON or the call fails.
 */
export async function missingRoutes(transport: Transport): Promise<readonly string[]> {
  const missing = NEEDED.map(async (route) => {
    const answer = await ask(transport, route)
    return answer && answer.status < 500 && !isJson(answer) ? [route] : []
  })
  return (await Promise.all(missing)).flat()
}

/** Result of the check. `refusal`: why the plugin cannot work; `note`: an untested version. */
type Examined = { readonly refusal?: string; readonly note?: string; readonly version?: string }

let asked: Promise<Examined> | undefined

/** Checks OpenCode once; all instances of this process share the result. Never rejects. */
function examineOpencode(transport: Transport): Promise<Examined> {
  asked ??= examine(transport)
  return asked
}

/**
 * Checks OpenCode; never rejects. A version that the tests cover has every needed route, so only other versions are
 * checked for routes.
 */
export async function examine(transport: Transport): Promise<Examined> {
  const version = await opencodeVersion(transport)
  if (version && isTried(version)) return { version }
  const routes = await missingRoutes(transport)
  return {
    version,
    ...(routes.length > 0 && { refusal: unsuitable(routes, version) }),
    ...(version && { note: versionNote(version) }),
  }
}

/** OpenCode's version, for messages; undefined where OpenCode does not answer with one. */
export async function opencodeVersion(transport: Transport): Promise<string | undefined> {
  const answer = await ask(transport, "GET /global/health")
  if (!answer || !isJson(answer)) return undefined
  const { version } = (await answer.json().catch(() => ({}))) as { version?: unknown }
  return typeof version === "string" ? version : undefined
}

/** Message about missing routes. */
export const unsuitable = (routes: readonly string[], version: string | undefined): string =>
  `superagents cannot work on this OpenCode${version ? ` (${version})` : ""} and offers no tools: it lacks ` +
  `${routes.join(", ")}. It is made for OpenCode 1.18 and 1.19; "opencode --version" tells which one runs.`

const isJson = ({ headers }: Response): boolean => headers.get("content-type")?.includes("json") ?? false

async function ask({ baseUrl, headers, fetch }: Transport, route: string): Promise<Response | undefined> {
  const [method = "", path = ""] = route.replace(":id", NO_SESSION).split(" ")
  try {
    const request = new Request(new URL(path, baseUrl), {
      method,
      headers: { ...headers, "content-type": "application/json" },
      ...(method !== "GET" && { body: "{}" }),
      signal: AbortSignal.timeout(LIMIT_MS),
    })
    return await fetch(request)
  } catch {
    return undefined
  }
}

const WRONG_VERSION = "superagents: another OpenCode is needed"
const UNTRIED_VERSION = "superagents: a version that was not tried"

/** Knows whether the tools work with this OpenCode, and warns the user if they do not. */
export class Suitability {
  readonly #connection: OpencodeConnection
  #isTold = false
  /** Why no tool can work; undefined if the tools can work, or if this is not known yet. */
  refusal: string | undefined

  constructor(connection: OpencodeConnection) {
    this.#connection = connection
  }

  async examine(): Promise<void> {
    const { opencode, transport } = this.#connection
    const { refusal, note, version } = await examineOpencode(transport)
    if (refusal) opencode.log("error", refusal)
    this.refusal = refusal
    if (!note || !version) return
    const isNew = () => isNews(`OpenCode ${version}`, note)
    this.#connection.warn({ title: UNTRIED_VERSION, message: note, isNews: isNew })
  }

  /** Shows pending warnings. Called when a screen is available. */
  show(): void {
    this.#connection.showWarnings()
    if (this.refusal === undefined || this.#isTold) return
    this.#connection.opencode.toast({ title: WRONG_VERSION, message: this.refusal, variant: "error" })
    this.#isTold = true
  }
}
