import type { Transport } from "./client.ts"
import { versionNote } from "./version.ts"

/** No session has this id: what is asked of it is refused, and nothing comes of it. */
const NO_SESSION = "ses_00000000000000000000000000"
const LIMIT_MS = 10_000

/** Without these there are no background agents. All are quick, and as they are asked here none changes anything. */
const NEEDED = [
  "GET /session/status",
  "GET /session/:id/children",
  "GET /session/:id/message",
  "PATCH /session/:id",
  "GET /permission",
  "GET /question",
] as const

/**
 * The routes that the plugin needs and this host does not have. A host answers what it does not know with its web page,
 * so a route is there if its answer is JSON. A call that fails tells nothing: what cannot be asked counts as there.
 * Never rejects.
 */
export async function missingRoutes(transport: Transport): Promise<readonly string[]> {
  const missing = NEEDED.map(async (route) => {
    const answer = await ask(transport, route)
    return answer && answer.status < 500 && !isJson(answer) ? [route] : []
  })
  return (await Promise.all(missing)).flat()
}

/** What is known of the host of this process. `refusal`: why it will not do. `note`: it was not tried. */
export type Examined = { readonly refusal?: string; readonly note?: string; readonly version?: string }

let asked: Promise<Examined> | undefined

/** Asked once a process: all its instances have the same host. Never rejects. */
export function examineHost(transport: Transport): Promise<Examined> {
  asked ??= Promise.all([missingRoutes(transport), hostVersion(transport)]).then(([routes, version]) => ({
    version,
    ...(routes.length > 0 && { refusal: unsuitable(routes, version) }),
    ...(version && { note: versionNote(version) }),
  }))
  return asked
}

/** What host answers here, for the words about it; undefined where it does not say. */
export async function hostVersion(transport: Transport): Promise<string | undefined> {
  const answer = await ask(transport, "GET /global/health")
  if (!answer || !isJson(answer)) return undefined
  const { version } = (await answer.json().catch(() => ({}))) as { version?: unknown }
  return typeof version === "string" ? version : undefined
}

/** What a user and a model are told of a host that lacks routes. */
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
