/** An OpenCode that is played: it answers the plugin's calls at once, and forgets when told to. */
export const stubOpencode = () => {
  /** The prompt's message id, by the child's session. */
  const prompts = new Map<string, string>()
  /** The messages that parents were told of their tasks' ends. */
  const told = new Set<string>()
  let toldBefore = 0
  let sessions = 0
  let calls = 0

  const sessionOf = (id: string) => ({
    id,
    slug: id,
    projectID: "p",
    directory: "/",
    title: "t",
    version: "1",
    time: { created: 1, updated: 1 },
    cost: 0.001,
    tokens: { input: 100, output: 20, reasoning: 0, cache: { read: 0, write: 0 } },
  })
  const model = { providerID: "scripted", modelID: "alpha" }
  const userMessage = (id: string, sessionID: string, created = Date.now()) => ({
    info: { id, sessionID, role: "user", time: { created }, agent: "build", model },
    parts: [],
  })
  const answer = (parentID: string, sessionID: string) => ({
    info: {
      ...{ id: `${parentID}z`, sessionID, role: "assistant", time: { created: Date.now(), completed: Date.now() } },
      ...{ parentID, ...model, agent: "build", mode: "build", path: { cwd: "/", root: "/" }, cost: 0, finish: "stop" },
      tokens: { input: 100, output: 20, reasoning: 0, cache: { read: 0, write: 0 } },
    },
    parts: [{ id: "prt_1", sessionID, messageID: `${parentID}z`, type: "text", text: "done" }],
  })

  const messagesOf = (sessionID: string) => {
    const promptID = prompts.get(sessionID)
    // The parent's turn began long ago, so no other process seems to begin one.
    if (!promptID) return [userMessage("msg_000000000001aaaaaaaaaaaaaa", sessionID, 1)]
    return [userMessage(promptID, sessionID), answer(promptID, sessionID)]
  }

  const reply = async (request: Request): Promise<unknown> => {
    const { pathname } = new URL(request.url)
    const [, top, id, what, which] = pathname.split("/")
    if (top === "agent") return [{ name: "general", mode: "subagent", permission: [], options: {} }]
    if (top !== "session") return true
    if (!id) return request.method === "POST" ? sessionOf(`ses_${++sessions}`) : []
    if (id === "status") return {}
    if (!what) return sessionOf(id)
    if (what === "prompt_async") {
      const { messageID } = (await request.json()) as { messageID: string }
      if (id.startsWith("ses_parent")) told.add(messageID)
      else prompts.set(id, messageID)
      return undefined
    }
    // What starts no model is sent so, and answered with what is stored.
    if (what === "message" && request.method === "POST") {
      const { messageID, parts } = (await request.json()) as { messageID: string; parts: unknown[] }
      told.add(messageID)
      return { ...userMessage(messageID, id), parts }
    }
    if (what === "message" && which) return { ...userMessage(which, id), parts: [{ id: "prt_1" }, { id: "prt_2" }] }
    if (what === "message") return messagesOf(id)
    return []
  }

  const answerTo = async (request: Request): Promise<Response> => {
    calls++
    const body = await reply(request)
    if (body === undefined) return new Response(null, { status: 204 })
    return new Response(JSON.stringify(body), { headers: { "content-type": "application/json" } })
  }

  return {
    /** What the plugin gets as its `client`. */
    client: { _client: { getConfig: () => ({ baseUrl: "http://stub", headers: {}, fetch: answerTo }) } },
    get calls() {
      return calls
    },
    get told() {
      return toldBefore + told.size
    },
    /** Drops what it keeps, so that it does not count as memory of the plugin. */
    forget() {
      prompts.clear()
      toldBefore += told.size
      told.clear()
    },
  }
}
