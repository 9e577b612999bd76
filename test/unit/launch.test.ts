import { describe, expect, test, vi } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { CALL, Rig } from "../support/rig.ts"

const HANG = { hang: true } as const
const QUESTIONS = { permission: "question", pattern: "*", action: "deny" }
const failing =
  (method: string, fail = new OpencodeError("out of order")) =>
  (called: string) =>
    called === method ? { fail } : undefined

describe("a launch", () => {
  test("a launch makes a session with its record, prompts it, and returns while the child works", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const task = await rig.launch({ description: "find it", prompt: "FIND it", batch: "search", timeout: 5000 })
    await rig.clock.advance(100)
    expect(task).toMatchObject({
      id: expect.stringMatching(/^bg_[a-z0-9]{8}$/),
      parentID: rig.parent,
      parentMessageID: `${CALL}_${rig.parent}`,
      description: "find it",
      agent: "general",
      model: { provider: "scripted", id: "alpha", variant: "high" },
      batch: "name:search",
      depth: 1,
      status: "running",
      run: { generation: 0, timeout: 5000 },
    })
    const session = rig.opencode.stored(task.sessionID)
    expect(session).toMatchObject({ parentID: rig.parent, title: "find it (@general background agent)" })
    expect((await rig.opencode.session(task.sessionID))?.record?.task).toMatchObject({ id: task.id, status: "running" })
    expect(session.messages[0]).toMatchObject({ id: task.run.promptID, agent: "general", model: task.model })
    expect(session.messages[0]?.parts).toEqual([expect.objectContaining({ text: "FIND it", synthetic: false })])
    expect(rig.view(task.id)).toMatchObject({ phase: "working", elapsed: 100 })
    await rig.clock.advance(1000)
    expect(rig.opencode.toasts).toEqual([
      { title: "Background agent launched", message: "find it (general)", variant: "info" },
    ])
  })

  test("a launch removes the prompt from the task's record once it was sent", async () => {
    const rig = new Rig()
    const task = await rig.launch()
    expect(JSON.stringify(rig.opencode.stored(task.sessionID).metadata)).not.toContain("FIND")
  })

  test("a launch whose prompt OpenCode refuses ends as failed, with one notification", async () => {
    const rig = new Rig()
    rig.opencode.onCall = (method, sessionID) =>
      method === "prompt" && sessionID !== rig.parent ? { fail: new OpencodeError("out of order") } : undefined
    const task = await rig.ended((await rig.launch()).id)
    expect(task).toMatchObject({
      status: "error",
      outcome: { reason: { code: "host", text: "OpenCode did not take the prompt: out of order" } },
    })
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.timers.pending).toBe(0)
  })

  test("a launch whose prompt arrived despite an error of OpenCode does not keep running", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { hang: true })
    rig.opencode.onCall = (method, sessionID) =>
      method === "prompt" && sessionID !== rig.parent ? { fail: new OpencodeError("lost"), after: true } : undefined
    const task = await rig.ended((await rig.launch()).id)
    expect(task.status).toBe("error")
    await rig.clock.advance(10_000)
    expect((await rig.opencode.activity()).has(task.sessionID)).toBe(false)
  })

  test("a launch shows nothing on the screen when toasts are off", async () => {
    const rig = new Rig({ options: { toasts: false } })
    rig.opencode.asking.add("bash")
    rig.onPrompt("ASK", { tools: [{ name: "bash", args: {} }] })
    await rig.launch({ prompt: "ASK" })
    await rig.ended((await rig.launch()).id)
    await rig.clock.advance(1000)
    expect(rig.opencode.toasts).toEqual([])
  })

  test("a launch uses the variant after a model's name, but does not split a model name with #", async () => {
    const rig = new Rig()
    rig.opencode.modelList = ["scripted/alpha", "scripted/alpha#high", "scripted/odd#one"]
    const named = await rig.launch({ model: "scripted/alpha#high", prompt: "ONE" })
    const odd = await rig.launch({ model: "scripted/odd#one", prompt: "TWO" })
    expect([named.model, odd.model]).toEqual([
      { provider: "scripted", id: "alpha", variant: "high" },
      { provider: "scripted", id: "odd#one" },
    ])
  })

  test("a launch prefers the named model, then the agent's own, then the parent's", async () => {
    const rig = new Rig()
    const own = await rig.launch({ agent: "plan" })
    const asked = await rig.launch({ agent: "plan", model: "scripted/alpha" })
    expect([own.model, asked.model]).toEqual([
      { provider: "scripted", id: "beta" },
      { provider: "scripted", id: "alpha" },
    ])
  })

  test("a launch without a timeout uses the option taskTimeout", async () => {
    const rig = new Rig({ options: { taskTimeout: 7000 } })
    expect((await rig.launch()).run.timeout).toBe(7000)
  })

  test("a launch denies the child what its parent is denied, and the task tools at the depth limit", async () => {
    const rig = new Rig()
    const denied = { permission: "bash", pattern: "rm *", action: "deny" as const }
    rig.opencode.stored(rig.parent).rules = [denied, { permission: "edit", pattern: "*", action: "allow" }]
    const task = await rig.launch()
    expect(rig.opencode.stored(task.sessionID).rules).toEqual([
      denied,
      ...["task", "output", "list", "cancel", "clear"].map((name) => ({
        permission: `superagents_${name}`,
        pattern: "*",
        action: "deny",
      })),
      { permission: "task", pattern: "*", action: "deny" },
      QUESTIONS,
    ])
  })

  test("a launch allows children the question tool only if childQuestions is on", async () => {
    for (const childQuestions of [false, true]) {
      const rig = new Rig({ options: { maxDepth: 0, childQuestions } })
      for (const request of [{}, { fork: true }, { agent: "build" }]) {
        const { sessionID } = await rig.launch(request)
        expect(rig.opencode.stored(sessionID).rules).toEqual([
          { ...QUESTIONS, action: childQuestions ? "allow" : "deny" },
        ])
      }
    }
  })

  test("a launch below the depth limit leaves the child its task tools", async () => {
    const rig = new Rig({ options: { maxDepth: 2 } })
    rig.onPrompt("FIND", HANG)
    const task = await rig.launch()
    expect(rig.opencode.stored(task.sessionID).rules).toEqual([QUESTIONS])
    const grandchild = await rig.launch({}, task.sessionID)
    expect(grandchild.depth).toBe(2)
    expect(rig.opencode.stored(grandchild.sessionID).rules).toHaveLength(8)
    await expect(rig.launch({}, grandchild.sessionID)).rejects.toThrow(
      "No task can be launched here: this session is 2 deep already, and the option maxDepth allows 2.",
    )
  })

  test("a launch counts its depth through sessions without a task and records known only to OpenCode", async () => {
    const rig = new Rig()
    const task = await rig.launch()
    const below = rig.opencode.openSession({ parentID: task.sessionID })
    await expect(rig.launch({}, below)).rejects.toThrow("this session is 2 deep already")
    rig.restart()
    await expect(rig.launch({}, task.sessionID)).rejects.toThrow("this session is 1 deep already")
  })

  test("a launch has no depth limit when maxDepth is 0", async () => {
    const rig = new Rig({ options: { maxDepth: 0, fork: { maxTokens: 0, maxToolResultChars: 0 } } })
    rig.onPrompt("FIND", HANG)
    let sessionID = rig.parent
    for (let depth = 1; depth <= 5; depth++) {
      const task = await rig.launch({ fork: depth > 3 }, sessionID)
      expect(task.depth).toBe(depth)
      expect(new Set(rig.opencode.stored(task.sessionID).rules.map(({ permission }) => permission))).toEqual(
        new Set(["question"]),
      )
      sessionID = task.sessionID
    }
  })

  test("a launch in a session that nobody knows has depth 1", async () => {
    const rig = new Rig()
    expect((await rig.launch({}, "ses_unknown")).depth).toBe(1)
  })
})

describe("a refused launch", () => {
  const refused = async (rig: Rig, request: Parameters<Rig["launch"]>[0], text: string | RegExp) => {
    const sessions = rig.opencode.database.sessions.size
    await expect(rig.launch(request)).rejects.toMatchObject({ name: "CallError", message: expect.stringMatching(text) })
    expect(rig.opencode.database.sessions.size).toBe(sessions)
    expect(rig.timers.pending).toBe(0)
  }

  test("a launch with an unknown agent is refused with the available names, without hidden primary agents", () => {
    const rig = new Rig()
    const title = { name: "title", description: "", mode: "primary", hidden: true } as const
    rig.opencode.agentList = [...rig.opencode.agentList, title, { ...title, name: "ghost", mode: "subagent" }]
    return refused(
      rig,
      { agent: "nobody" },
      /^No agent "nobody" \(argument `agent`\)\. There are: build, general, plan, ghost\.$/,
    )
  })

  test("a launch with an unknown variant is refused with suggestions", async () => {
    const rig = new Rig()
    rig.opencode.modelList = ["scripted/alpha", "scripted/alpha#high", "scripted/beta"]
    await refused(rig, { model: "scripted/alpha#hihg" }, /No model "scripted\/alpha#hihg".* Did you mean: .*#high/)
    await refused(rig, { model: "scripted/beta#high" }, /No model "scripted\/beta#high"/)
  })

  test("a launch with an unknown model is refused with the names that resemble it", () =>
    refused(new Rig(), { model: "scripted/alpa" }, /No model "scripted\/alpa".* Did you mean: scripted\/alpha/))

  test("a launch with a model that resembles none is refused with all available models", () =>
    refused(
      new Rig(),
      { model: "x/yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy" },
      /There are: scripted\/alpha, scripted\/beta\./,
    ))

  test("a launch with a named model is refused where allowModelOverride is off", () =>
    refused(
      new Rig({ options: { allowModelOverride: false } }),
      { model: "scripted/alpha" },
      /Argument `model` is not allowed here/,
    ))

  test.each(["agents", "session", "caller", "models", "createSession"])(
    "a launch is refused and leaves no session when OpenCode fails at %s",
    async (method) => {
      const rig = new Rig()
      const sessions = rig.opencode.database.sessions.size
      rig.opencode.onCall = failing(method)
      await expect(rig.launch({ model: "scripted/alpha" })).rejects.toThrow(/out of order/)
      expect(rig.opencode.database.sessions.size).toBe(sessions)
      rig.opencode.onCall = () => undefined
      expect((await rig.launch()).status).toBe("running")
    },
  )

  test("a launch leaves no session when OpenCode made one but reported an error", async () => {
    const rig = new Rig()
    const sessions = rig.opencode.database.sessions.size
    const fail = new OpencodeError("no answer")
    rig.opencode.onCall = (method) => (method === "createSession" ? { fail, after: true } : undefined)
    await expect(rig.launch()).rejects.toThrow("The task could not be launched: no answer")
    await rig.settle()
    expect(rig.opencode.database.sessions.size).toBe(sessions)
    await rig.clock.advance(60_000)
    expect(rig.notices()).toEqual([])
  })

  test("a launch above the launch rate is refused and says when to try again", async () => {
    const rig = new Rig({ options: { maxLaunchesPerMinute: 2 } })
    await rig.launch()
    await rig.clock.advance(10_000)
    await rig.launch()
    await expect(rig.launch()).rejects.toThrow(
      "Too many launches: the option maxLaunchesPerMinute allows 2 a minute. Try again in 50 s.",
    )
    await rig.launch({}, rig.openParent())
    await rig.clock.advance(50_000)
    expect((await rig.launch()).status).toBe("running")
  })

  test("a resume above the launch rate is refused, since launches and resumes count together", async () => {
    const rig = new Rig({ options: { maxLaunchesPerMinute: 2 } })
    const { id } = await rig.ended((await rig.launch()).id)
    await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    await rig.ended(id)
    await expect(rig.manager.resume(id, { prompt: "MORE" }, rig.caller)).rejects.toThrow("allows 2 a minute")
    await expect(rig.launch()).rejects.toThrow("allows 2 a minute")
    expect(rig.task(id).status).toBe("completed")
  })

  test("a launch or a resume is refused when the user does not allow the agent", async () => {
    const rig = new Rig()
    const { id } = await rig.ended((await rig.launch()).id)
    const asked: string[] = []
    const authorize = async (agent: string, description: string) => {
      asked.push(`${agent}: ${description}`)
      throw new Error("The user rejected it.")
    }
    const caller = { ...rig.caller, authorize }
    const refusal = 'Launching agent "general" was not allowed: The user rejected it. Nothing was launched.'
    const request = { description: "find it", prompt: "FIND", agent: "general", fork: false }
    await expect(rig.manager.launch(request, caller)).rejects.toThrow(refusal)
    await expect(rig.manager.resume(id, { prompt: "AGAIN" }, caller)).rejects.toThrow(refusal)
    expect(asked).toEqual(["general: find it", "general: find it"])
    expect(rig.task(id).status).toBe("completed")
  })

  test.each([false, true])(
    "a launch leaves no session when the user stops the calling turn meanwhile (fork: %s)",
    async (fork) => {
      const rig = new Rig()
      const sessions = rig.opencode.database.sessions.size
      const turn = new AbortController()
      rig.opencode.onCall = (method) => (method === "createSession" ? { slow: 1000 } : undefined)
      const request = { description: "find it", prompt: "FIND", agent: "general", fork }
      const launching = rig.manager.launch(request, { ...rig.caller, abort: turn.signal })
      const refused = expect(launching).rejects.toThrow("The call was stopped while the task was being made.")
      // A fork's history is counted in a thread of its own, which takes real time.
      await vi.waitFor(() => expect(rig.opencode.calls).toContain("createSession"), { timeout: 4000 })
      await rig.clock.advance(500)
      turn.abort()
      await rig.clock.advance(1000)
      await refused
      expect(rig.opencode.database.sessions.size).toBe(sessions)
      expect(rig.manager.list(rig.parent)).toEqual([])
      await expect(rig.manager.launch(request, { ...rig.caller, abort: turn.signal })).rejects.toThrow("was stopped")
      expect(rig.opencode.database.sessions.size).toBe(sessions)
    },
  )

  test.each(["the user is asked", "its session is created"])(
    "a launch leaves no session when the calling session is deleted while %s",
    async (when) => {
      const rig = new Rig()
      await rig.manager.ready(rig.parent)
      if (when !== "the user is asked")
        rig.opencode.onCall = (method) => (method === "createSession" ? { slow: 1000 } : undefined)
      let allow = () => {}
      const asked = new Promise<void>((resolve) => {
        allow = resolve
      })
      const caller = { ...rig.caller, authorize: () => (when === "the user is asked" ? asked : Promise.resolve()) }
      const request = { description: "find it", prompt: "FIND", agent: "general", fork: false }
      const refused = expect(rig.manager.launch(request, caller)).rejects.toThrow("Nothing was launched.")
      await rig.clock.advance(500)
      await rig.opencode.deleteSession(rig.parent)
      allow()
      await rig.clock.advance(1000)
      await refused
      expect(rig.opencode.database.sessions.size).toBe(0)
      expect(rig.timers.pending).toBe(0)
    },
  )

  test("a refused launch does not count against the launch rate", async () => {
    const rig = new Rig({ options: { maxLaunchesPerMinute: 1 } })
    await expect(rig.launch({ agent: "nobody" })).rejects.toThrow()
    expect((await rig.launch()).status).toBe("running")
  })
})

describe("an identical launch", () => {
  const options = { reuseIdentical: true, resultCacheTTL: 60_000 }

  test("an identical launch returns the earlier task while it runs and for a while after it completed", async () => {
    const rig = new Rig({ options })
    const first = await rig.launch()
    const again = () =>
      rig.manager.launch({ description: "other words", prompt: "FIND", agent: "general", fork: false }, rig.caller)
    expect(await again()).toMatchObject({ reused: true, view: { task: { id: first.id } } })
    const ended = await rig.ended(first.id)
    expect((await again()).reused).toBe(true)
    await rig.clock.advance((ended.run.endedAt ?? 0) + 60_000 - rig.clock.now())
    expect((await again()).reused).toBe(false)
  })

  test.each([
    ["another prompt", { prompt: "OTHER" }],
    ["another agent", { agent: "build" }],
    ["another model", { model: "scripted/beta" }],
  ])("a launch with %s is a new task, not an identical one", async (_what, request) => {
    const rig = new Rig({ options })
    const first = await rig.launch()
    expect((await rig.launch(request)).id).not.toBe(first.id)
  })

  test("a launch after a failure, in another session or as a fork is a new task", async () => {
    const rig = new Rig({ options })
    rig.onPrompt("FIND", { status: 400 })
    const first = await rig.launch()
    await rig.ended(first.id)
    expect((await rig.launch()).id).not.toBe(first.id)
    expect((await rig.launch({}, rig.openParent())).id).not.toBe(first.id)
    rig.onPrompt("FIND", { hang: true })
    const second = await rig.launch({ prompt: "FIND more" })
    expect((await rig.launch({ prompt: "FIND more", fork: true })).id).not.toBe(second.id)
  })

  test("a launch is a new task if the earlier one waits for others or has a check", async () => {
    const rig = new Rig({ options })
    rig.onPrompt("FIRST", { hang: true })
    const first = await rig.launch({ prompt: "FIRST" })
    const waiting = await rig.launch({ after: [first.id] })
    const plain = await rig.launch()
    expect(plain.id).not.toBe(waiting.id)
    const checked = await rig.launch({ prompt: "OTHER", check: "true" })
    expect((await rig.launch({ prompt: "OTHER" })).id).not.toBe(checked.id)
  })

  test("an identical launch in the same step shares the task being made, or replaces it after a failure", async () => {
    const rig = new Rig({ options })
    let fails = true
    rig.opencode.onCall = (method) => {
      if (method !== "createSession" || !fails) return undefined
      fails = false
      return { slow: 100, fail: new OpencodeError("no") }
    }
    const request = { description: "find it", prompt: "FIND", agent: "general", fork: false }
    const launches = [1, 2, 3].map(() => rig.manager.launch(request, rig.caller))
    const settled = Promise.allSettled(launches)
    await rig.clock.advance(1000)
    const outcomes = (await settled).map((each) => (each.status === "fulfilled" ? each.value.reused : "failed"))
    expect(outcomes.toSorted()).toEqual([false, true, "failed"].toSorted())
    expect(rig.manager.list(rig.parent)).toHaveLength(1)
  })

  test("an identical launch is a new task once the earlier task was resumed with another prompt", async () => {
    const rig = new Rig({ options })
    const first = await rig.ended((await rig.launch()).id)
    await rig.manager.resume(first.id, { prompt: "ANOTHER" }, rig.caller)
    await rig.ended(first.id)
    expect((await rig.launch()).id).not.toBe(first.id)
  })

  test("an identical launch does not count against the launch rate", async () => {
    const rig = new Rig({ options: { ...options, maxLaunchesPerMinute: 1 } })
    const first = await rig.launch()
    expect((await rig.launch()).id).toBe(first.id)
  })

  test("an identical launch is a new task when reuseIdentical is off", async () => {
    const rig = new Rig()
    expect((await rig.launch()).id).not.toBe((await rig.launch()).id)
  })
})

describe("a fork", () => {
  test("a fork records what it inherited and does not count that as its own usage", async () => {
    const rig = new Rig()
    const task = await rig.ended((await rig.launch({ fork: true })).id)
    expect(task.fork).toEqual({ messages: 0, tokens: expect.any(Number), droppedMessages: 0, cutResults: 0 })
    expect(task.outcome?.usage).toMatchObject({ input: 100, output: 20 })
    expect(rig.opencode.stored(task.sessionID)).toMatchObject({ title: "find it (@general background fork)" })
    expect((await rig.opencode.session(task.sessionID))?.record?.task.fork).toEqual(task.fork)
    expect(rig.notices()).toHaveLength(1)
  })

  test("a fork that cannot be made is an error and does not start as a fresh task", async () => {
    const rig = new Rig()
    const sessions = rig.opencode.database.sessions.size
    await expect(rig.launch({ fork: true }, "ses_unknown")).rejects.toThrow("The task could not be launched")
    expect(rig.opencode.database.sessions.size).toBe(sessions)
  })
})
