import { readFileSync } from "node:fs"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest"
import { NO_FIGURES, type TaskDraft } from "../../src/core/task.ts"
import { encodeRecord, RECORD_KEY, REQUEST_KEY } from "../../src/runtime/record/codec.ts"
import { callTool, eventually, idle, openSession, unwrap } from "../support/drive.ts"
import { type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { PACKAGE } from "../support/plugin.ts"
import { ownerOf, SIGNER } from "../support/records.ts"
import { startTui, type Tui } from "../support/tui.ts"

const source = (path: string) => fileURLToPath(new URL(`../../src/${path}`, import.meta.url))
const WIDE = [200, 50] as const
const NARROW = [100, 30] as const
/** The first turn of a terminal that is its own OpenCode loads the provider, too. */
const FIRST_TURN_MS = 60_000
const DIALOG_MS = 300
const PRESS_AGAIN_MS = 10_000

let model: ScriptedModel
let opencode: Opencode
/** Attached to OpenCode; the tests show one session after the other in it. */
let stage: Tui | undefined
/** Of a test that needs one of its own. */
let tui: Tui | undefined
let sessions = 0
/** What a child is to say, by its prompt; one that is not here yet is waited for. */
let replies: Map<string, (step: number) => Reply | Promise<Reply>>

const gate = () => {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open }
}

beforeAll(async () => {
  model = await startModel()
  const permission = { "*": "allow", bash: { "*": "ask" } }
  opencode = await startOpencode({ model, permission, plugin: [[source("plugin.ts"), { childQuestions: true }]] })
}, 60_000)

afterAll(async () => {
  await stage?.stop()
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => {
  model.reset()
  replies = new Map()
  model.use((request) => replies.get(request.firstUser)?.(request.sinceUser.length))
})

afterEach(async ({ task }) => {
  await tui?.stop()
  tui = undefined
  if (task.result?.state !== "fail") return
  // What it shows now is not what the next test expects.
  await stage?.stop()
  stage = undefined
})

const begin = () => openSession(opencode, { title: `Session ${++sessions} of the terminal` })

const attach = async (sessionID: string, size: readonly [number, number]) => {
  stage ??= await startTui({ opencode, sessionID, plugin: [source("features/terminal/tui.tsx")] })
  const { title } = await unwrap(opencode.client.session.get({ sessionID }))
  await stage.show({ id: sessionID, title }, size)
  return stage
}

const launch = async (sessionID: string, description: string, more: Record<string, unknown> = {}) => {
  const args = { description, prompt: description, agent: "general", ...more }
  const outcome = await callTool(opencode, model, sessionID, "superagents_task", args)
  expect(outcome.error).toBeUndefined()
  return String(outcome.metadata?.sessionId)
}

/** A dialog takes keys a moment after it is drawn; until then what is below it takes them. */
const choose = async (screen: Tui, shown: RegExp | string, ...keys: string[]) => {
  await screen.waitFor(shown)
  await sleep(DIALOG_MS)
  await screen.keys(...keys, "Enter")
}

/** A terminal that is busy may lose a key: then a user presses it again. */
const openTasks = async (screen: Tui) => {
  for (let left = 3; ; left--) {
    await screen.keys("C-x", "k")
    const opened = screen.waitFor(/Background agents\s+esc/, { timeout: left > 0 ? PRESS_AGAIN_MS : undefined })
    if (
      await opened.then(
        () => true,
        (error) => (left > 0 ? false : Promise.reject(error)),
      )
    )
      return
  }
}

describe.each([["wide", WIDE] as const])("the sidebar on a %s terminal", (_name, size) => {
  test("the sidebar shows nothing while there are no tasks", async () => {
    const screen = await attach(await begin(), size)
    await screen.waitFor("Context")
    expect(screen.screen()).not.toContain("Background agents")
    await screen.type("/board")
    await screen.waitFor(/\/board\s+See the project/)
    await screen.keys("Enter")
    await screen.waitFor("The board is off")
  })

  test("the sidebar shows a task appear, count up and end, and its notification without the hidden part", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    const { opened, open } = gate()
    replies.set("Count the files", async (step) => {
      if (step === 0) return { tools: [{ name: "glob", args: { pattern: "*.md" } }] }
      await opened
      return { text: "There are 3." }
    })
    await launch(sessionID, "Count the files")
    await screen.waitFor(/Background agents 1 running/)
    await screen.waitFor(/Count the files\s+\d+s\n.*working · 1 call · glob$/m)
    const seconds = (text: string) => Number(/Count the files\s+(\d+)s/.exec(text)?.[1])
    const before = seconds(screen.screen())
    await screen.waitFor((text) => seconds(text) >= before + 2)
    open()
    await screen.waitFor(/Background agents 1 done/)
    await screen.waitFor(/✓ Count the files\s+[\d.]+s · 1 call$/m)
    const last = await screen.waitFor(/Agent "Count the files" finished in .*\n.*Task Progress: 1\/1/)
    expect(last).not.toContain("superagents_output tools")
    expect(last).toMatch(/[\d.]+K? tokens · \$0\.\d{4}/)
  })

  test("the sidebar shows the progress of a batch, and forks among the children", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    const breakers = [gate(), gate()]
    for (const [index, name] of ["first", "second"].entries()) {
      replies.set(name, async () => {
        await breakers[index]?.opened
        return { text: "done" }
      })
    }
    model.use((request) => {
      if (request.lastUser !== "second") return undefined
      return breakers[1]?.opened.then(() => ({ text: "done" }))
    })
    await launch(sessionID, "first", { batch: "survey" })
    await launch(sessionID, "second", { batch: "survey", fork: true })
    await screen.waitFor(/survey ─+ 0\/2/)
    breakers[0]?.open()
    await screen.waitFor(/survey ━+─+ 1\/2/)
    breakers[1]?.open()
    await screen.waitFor(/survey ━+ 2\/2/)
    await screen.waitFor(/Background agents 2 done/)
  })

  test("the sidebar shows what was spent, which task another waits for, and who says its last word", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    const { opened, open } = gate()
    model.use(async ({ userTexts, messages, parentSessionID }) => {
      if (userTexts[0] !== "Spend it" || !parentSessionID) return undefined
      const usage = { input: 10_000, output: 0 }
      if (!JSON.stringify(messages).includes("Answer at once: what is done"))
        return { tools: [{ name: "glob", args: { pattern: "*.md" } }], usage }
      await opened
      return { text: "Half is done.", usage }
    })
    await launch(sessionID, "Spend it", { max_cost: 0.01, batch: "dear" })
    await screen.waitFor(/Spend it\s+\d+s\n.*saying its last word · 1 call/m)
    await launch(sessionID, "Come later", { after: "dear" })
    await screen.waitFor(/○ Come later\s+\d+s\n.*waiting for bg_[a-z0-9]{8}$/m)
    await screen.waitFor(/10\.0K tokens · \$0\.0100/)
    open()
    await screen.waitFor(/✗ Spend it[\s\S]*⊘ Come later|⊘ Come later[\s\S]*✗ Spend it/)
    await screen.waitFor(/20\.0K tokens · \$0\.0200/)
  })

  test("the sidebar in a terminal opened later shows the earlier tasks", async () => {
    const sessionID = await begin()
    const { opened, open } = gate()
    replies.set("Early bird", async (step) => {
      if (step === 0) return { tools: [{ name: "glob", args: { pattern: "*.md" } }] }
      await opened
      return { text: "done" }
    })
    const child = await launch(sessionID, "Early bird")
    await eventually(async () => (await unwrap(opencode.client.session.messages({ sessionID: child }))).length > 1)
    tui = await startTui({ opencode, sessionID, size, plugin: [source("features/terminal/tui.tsx")] })
    await tui.waitFor(/Early bird\s+\d+s\n.*working · 1 call · glob$/m)
    open()
    await tui.waitFor(/✓ Early bird/)
  })
})

describe.each([
  ["wide", WIDE],
  ["narrow", NARROW],
] as const)("/tasks on a %s terminal", (name, size) => {
  test("/tasks jumps to a child session and leads back", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    replies.set("Say hello", () => ({ text: "Hello from the child." }))
    await launch(sessionID, "Say hello")
    await idle(opencode, sessionID)
    await screen.type("/tasks")
    await screen.waitFor(/\/tasks\s+See this session's tasks/)
    await screen.keys("Enter")
    await screen.waitFor(/✓ Say hello general, completed/)
    await screen.keys("Enter")
    await screen.waitFor("Read the answer")
    await screen.keys("Enter")
    await screen.waitFor("Hello from the child.")
    await screen.keys("Escape")
    // A key that follows too soon would be read together with the escape.
    await screen.waitFor((text) => !/Say hello\s+esc/.test(text))
    await openTasks(screen)
    await screen.keys("Enter")
    await screen.waitFor("Open its session")
    await screen.keys("Down", "Enter")
    await screen.waitFor(/Subagent/)
    await screen.waitFor("Hello from the child.")
    await openTasks(screen)
    await screen.waitFor("Back to the parent session")
    await screen.keys("Enter")
    await screen.waitFor((text) => text.includes("Task Progress: 1/1") && !text.includes("Subagent"))
  })

  test.runIf(name === "narrow")("/tasks shows an agent's terminal control codes as plain text", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    replies.set("Wipe the screen", () => ({ text: "First line.\u001b[2J\u001b]0;taken\u0007\n\nLast line." }))
    await launch(sessionID, "Wipe the screen")
    await screen.waitFor(/Agent "Wipe the screen" finished/)
    await openTasks(screen)
    await choose(screen, /✓ Wipe the screen general, completed/)
    await choose(screen, "Read the answer")
    await screen.waitFor(/Wipe the screen\s+esc\s+First line\.\[2J\]0;taken\s+Last line\./)
    await screen.keys("Escape")
    await screen.waitFor((text) => !text.includes("First line.[2J"))
  })

  test.runIf(name === "narrow")("/tasks shows a long answer page by page", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    const lines = Array.from({ length: 90 }, (_, at) => `Line ${at + 1}.`)
    replies.set("Write at length", () => ({ text: lines.join("\n") }))
    await launch(sessionID, "Write at length")
    await screen.waitFor(/Agent "Write at length" finished/)
    await openTasks(screen)
    await choose(screen, /✓ Write at length general, completed/)
    await choose(screen, "Read the answer")
    await screen.waitFor(/Write at length\s+esc\s+Line 1\.\s+Line 2\./)
    await sleep(DIALOG_MS)
    for (const [key, shown] of [
      ["PageDown", /Write at length\s+esc\s+Line \d\d\./],
      ["PageUp", /Write at length\s+esc\s+Line 1\./],
      ["End", "Line 90."],
      ["Home", /Write at length\s+esc\s+Line 1\./],
    ] as const) {
      await screen.keys(key)
      await screen.waitFor(shown)
    }
    await screen.keys("Escape")
    await screen.waitFor((text) => !/Write at length\s+esc/.test(text))
  })

  test("/tasks can cancel, resume and clear background tasks", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    replies.set("Never ends", () => ({ hang: true }))
    await launch(sessionID, "Never ends")
    await screen.waitFor(name === "narrow" ? "1 agent" : "1 running")
    await openTasks(screen)
    await screen.waitFor(/Never ends general, working/)
    await screen.keys("Enter")
    await screen.waitFor("Cancel it")
    await screen.keys("Up", "Enter")
    await screen.waitFor(/Agent "Never ends" cancelled after/)
    replies.set("Ask me again", () => ({ text: "Once." }))
    model.use((request) => (request.lastUser === "And again" ? { text: "Twice." } : undefined))
    await launch(sessionID, "Ask me again")
    await screen.waitFor(/Agent "Ask me again" finished/)
    // The end is told first; the list follows.
    await openTasks(screen)
    await choose(screen, /✓ Ask me again general, completed/)
    await screen.waitFor("Resume it with a prompt")
    await screen.keys("Down", "Down", "Enter")
    await screen.waitFor("Resume: Ask me again")
    await screen.type("And again")
    await screen.keys("Enter")
    await screen.waitFor(/Resume #1 completed/)
    await openTasks(screen)
    await choose(screen, /✓ Ask me again general, completed/)
    await screen.waitFor("Clear it from the list")
    await screen.keys("Up", "Enter")
    await eventually(async () => {
      const list = await unwrap(opencode.client.session.children({ sessionID }))
      // What it cost stays on the session's bill, in a record that is forgotten else.
      const tasks = list.map(({ metadata }) => (metadata?.superagents as { task?: { forgotten?: true } })?.task)
      return tasks.filter((task) => task && !task.forgotten).length === 1
    })
    if (name === "wide") await screen.waitFor((text) => !text.includes("✓ Ask me again"))
  })

  test("/tasks can send a message to a working agent", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    const door = gate()
    model.use(async ({ lastUser }) => {
      if (lastUser === "One more thing") return { text: "That, too." }
      if (lastUser !== "Keep busy") return undefined
      await door.opened
      return { text: "The first thing." }
    })
    const child = await launch(sessionID, "Keep busy")
    await openTasks(screen)
    await choose(screen, /Keep busy general, working/)
    await choose(screen, "Say something", "Down", "Down")
    await screen.waitFor("Say to: Keep busy")
    await screen.type("One more thing")
    await screen.keys("Enter")
    await eventually(
      async () => {
        const said = await unwrap(opencode.client.session.messages({ sessionID: child }))
        return JSON.stringify(said).includes("One more thing")
      },
      { timeout: 30_000 },
    )
    door.open()
    await model.waitFor(({ lastUser }) => lastUser === "One more thing", { timeout: 30_000 })
    await screen.waitFor(/Agent "Keep busy" finished/)
  })

  test.runIf(name === "narrow")("/tasks offers no message to a map, whose agents would not read it", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    for (const item of ["one", "two"]) replies.set(`Grind ${item}`, () => ({ hang: true }))
    await launch(sessionID, "Grind all", { prompt: "Grind {{item}}", each: ["one", "two"] })
    await openTasks(screen)
    await choose(screen, /Grind all general, /)
    await screen.waitFor("Cancel it")
    expect(screen.screen()).not.toContain("Say something")
    await sleep(DIALOG_MS)
    await screen.keys("Up", "Enter")
    await screen.waitFor(/Agent "Grind all" cancelled after/)
  })

  // Without the sidebar: what stands there is the list's alone.
  test.runIf(name === "narrow")("/tasks updates times and shows new tasks while it is open", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    for (const prompt of ["Stays silent", "Comes later"]) replies.set(prompt, () => ({ hang: true }))
    await launch(sessionID, "Stays silent")
    await screen.waitFor("1 agent")
    await openTasks(screen)
    const seconds = (text: string) => Number(/Stays silent general, working\s+(\d+)s/.exec(text)?.[1] ?? Number.NaN)
    const first = seconds(await screen.waitFor((text) => seconds(text) >= 0))
    await screen.waitFor((text) => seconds(text) >= first + 2)
    await launch(sessionID, "Comes later")
    await screen.waitFor(/Comes later general, working/)
    await screen.keys("Escape")
    await screen.waitFor((text) => !text.includes("Stays silent general"))
    await callTool(opencode, model, sessionID, "superagents_cancel", { all: true })
  })

  test.runIf(name === "narrow")(
    "/tasks keeps the cursor on its row while another task ends and one begins",
    async () => {
      const sessionID = await begin()
      const screen = await attach(sessionID, size)
      const { opened, open } = gate()
      replies.set("The first", () => ({ hang: true }))
      replies.set("The second", () => opened.then(() => ({ text: "Done." })))
      replies.set("The third", () => ({ hang: true }))
      replies.set("The fourth", () => ({ hang: true }))
      for (const each of ["The first", "The second", "The third"]) await launch(sessionID, each)
      await screen.waitFor("3 agents")
      await openTasks(screen)
      await screen.waitFor(/The third general, working/)
      await sleep(DIALOG_MS)
      await screen.keys("Down", "Down")
      open()
      await screen.waitFor(/✓ The second general, completed/)
      await launch(sessionID, "The fourth")
      await choose(screen, /The fourth general, working/)
      await screen.waitFor(/The third\s+esc/)
      await screen.keys("Escape")
      await screen.waitFor((text) => !/The third\s+esc/.test(text))
      await openTasks(screen)
      await choose(screen, /Cancel all 3 at work/, "Up")
      await screen.waitFor(/Agent "The fourth" cancelled after/)
      await screen.waitFor(name === "narrow" ? (text) => !/\d agents?/.test(text) : "4 done")
    },
  )

  test.runIf(name === "wide")("/tasks keeps the text of a message that could not be sent", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    replies.set("Goes away", () => ({ hang: true }))
    const child = await launch(sessionID, "Goes away")
    await screen.waitFor("1 running")
    await openTasks(screen)
    await choose(screen, /Goes away general, working/)
    await choose(screen, "Say something", "Down", "Down")
    await screen.waitFor("Say to: Goes away")
    await screen.type("Do not lose this")
    await unwrap(opencode.client.session.abort({ sessionID: child }))
    await unwrap(opencode.client.session.delete({ sessionID: child }))
    // One toast takes another's place, whenever it comes: then the words are sent again.
    await eventually(async () => {
      await screen.keys("Enter")
      return screen.waitFor("Session not found", { timeout: 3000 }).catch(() => undefined)
    })
    await sleep(DIALOG_MS)
    expect(screen.screen()).toContain("Do not lose this")
    await screen.keys("Escape")
    await screen.waitFor((text) => !text.includes("Do not lose this"))
  })

  test.each([
    ["of a fork", { fork: true }],
    ["of one in a worktree", { place: "worktree" }],
  ])("/tasks answers a permission question %s", async (_whose, how) => {
    const sessionID = await begin()
    const from = opencode.events.all.length
    const screen = await attach(sessionID, size)
    model.use((request) => {
      if (request.sessionID === sessionID || !request.lastUser.startsWith("Ask first")) return undefined
      if (request.sinceUser.length > 0) return { text: "Done as allowed." }
      return { tools: [{ name: "bash", args: { command: "echo allowed", description: "Say it" } }] }
    })
    await launch(sessionID, "Ask first", how)
    await screen.waitFor(name === "wide" ? /waiting for permission: bash/ : "Permission required")
    await openTasks(screen)
    await choose(screen, /Ask first general, waiting for perm/)
    await choose(screen, "Answer its permission question")
    await choose(screen, /Permission: bash: echo allowed/)
    await screen.waitFor(/Agent "Ask first" finished/)
    const toasts = () =>
      opencode.events.all.slice(from).flatMap(({ type, properties }) => {
        const { title, message } = properties as { title?: string; message?: string }
        return type === "tui.toast.show" && message?.includes("Ask first") ? [title] : []
      })
    await eventually(() => toasts().includes("Background agent finished"))
    expect(toasts()).toEqual([
      "Background agent launched",
      "A background agent asks for permission",
      "Background agent finished",
    ])
  })

  test("/tasks answers a question that allows several choices", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    const labels = ["Apples", "Bread", "Cheese"]
    const question = {
      question: "What is to be bought?",
      header: "Shopping",
      multiple: true,
      options: labels.map((label) => ({ label, description: `some ${label.toLowerCase()}` })),
    }
    model.use((request) => {
      if (request.lastUser !== "Buy it") return undefined
      const [result] = request.toolResults
      return result
        ? { text: `They said ${result.content}` }
        : { tools: [{ name: "question", args: { questions: [question] } }] }
    })
    const child = await launch(sessionID, "Buy it")
    // OpenCode shows the question of a child, too; what is opened after that is above it.
    await screen.waitFor("select all that apply")
    await openTasks(screen)
    await choose(screen, /Buy it general, waiting for/)
    await choose(screen, "Answer its question")
    await choose(screen, /\[ \] Apples some/)
    await choose(screen, /\[x\] Apples some/, "Down", "Down")
    await choose(screen, /\[x\] Cheese some/, "Down")
    await idle(opencode, child)
    const answer = (await unwrap(opencode.client.session.messages({ sessionID: child }))).at(-1)
    expect(JSON.stringify(answer)).toMatch(/They said .*Apples, Cheese/)
  })

  test.runIf(name === "narrow")("/tasks sends a typed answer together with the ticked choices", async () => {
    const sessionID = await begin()
    const screen = await attach(sessionID, size)
    const options = ["Apples", "Bread"].map((label) => ({ label, description: `some ${label.toLowerCase()}` }))
    const question = { question: "What is to be fetched?", header: "Shopping", multiple: true, options }
    model.use((request) => {
      if (request.lastUser !== "Fetch it") return undefined
      const [result] = request.toolResults
      return result
        ? { text: `They said ${result.content}` }
        : { tools: [{ name: "question", args: { questions: [question] } }] }
    })
    const child = await launch(sessionID, "Fetch it")
    await screen.waitFor("select all that apply")
    await openTasks(screen)
    await choose(screen, /Fetch it general, waiting for/)
    await choose(screen, "Answer its question")
    await choose(screen, /\[ \] Apples some/)
    await choose(screen, /\[x\] Apples some/, "Down", "Down", "Down")
    await screen.waitFor("Enter text")
    await sleep(DIALOG_MS)
    await screen.type("Salt")
    await screen.keys("Enter")
    await idle(opencode, child)
    const answer = (await unwrap(opencode.client.session.messages({ sessionID: child }))).at(-1)
    expect(JSON.stringify(answer)).toMatch(/They said .*Apples, Salt/)
  })
})

test("the key that opens the tasks can be changed by the user", async () => {
  const sessionID = await openSession(opencode)
  tui = await startTui({
    opencode,
    sessionID,
    plugin: [[source("features/terminal/tui.tsx"), { keybind: "<leader>j" }]],
  })
  await tui.keys("C-x")
  await tui.keys("j")
  await tui.waitFor("No background agents in this session yet.")
})

test("a terminal without the server half shows earlier tasks and does not pretend to cancel them", async () => {
  const bare = await startOpencode({ model })
  try {
    const parent = await openSession(bare)
    const metadata = { [RECORD_KEY]: encodeRecord(leftBehind(parent), ownerOf("gone"), SIGNER) }
    const child = await unwrap(bare.client.session.create({ parentID: parent, title: "child", metadata }))
    tui = await startTui({ opencode: bare, sessionID: parent, plugin: [source("features/terminal/tui.tsx")] })
    await tui.waitFor(/Background agents 1 running/)
    await openTasks(tui)
    await tui.keys("Enter")
    await tui.waitFor("Cancel it")
    await tui.keys("Up", "Enter")
    await tui.waitFor("Nobody answers")
    await eventually(async () => {
      const { metadata: now } = await unwrap(bare.client.session.get({ sessionID: child.id }))
      return now?.[RECORD_KEY] && !now[REQUEST_KEY]
    })
  } finally {
    await bare.stop()
  }
})

const leftBehind = (parentID: string): TaskDraft => ({
  id: "bg_abcdefgh",
  parentID,
  parentMessageID: "msg_0",
  description: "Left behind",
  agent: "general",
  batch: "auto:bg_abcdefgh",
  depth: 1,
  createdAt: 1,
  earlier: NO_FIGURES,
  fingerprint: "",
  status: "running",
  run: { generation: 0, promptID: "msg_0", createdAt: 1, startedAt: 1, timeout: 0 },
  delivery: { state: "none" },
})

test("a narrow terminal is never wrapped", async () => {
  const sessionID = await begin()
  const screen = await attach(sessionID, NARROW)
  const long = "Find every usage of the old configuration loader and list each of them with its line"
  replies.set(long, () => ({ hang: true }))
  await launch(sessionID, long)
  await screen.waitFor("1 agent")
  await screen.keys("C-x")
  await screen.keys("b")
  const text = await screen.waitFor(/[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] Find every usage.*… +\d+s$/m)
  expect(text).toMatch(/\n +working$/m)
})

test("a terminal that runs OpenCode itself shows everything, also budgets, and no stray text on the screen", async () => {
  tui = await startTui({
    home: { model, plugin: [[PACKAGE, { maxCostPerSession: 5, maxTokensPerSession: 2_000_000 }]] },
    plugin: [PACKAGE],
    ready: "Ask anything",
  })
  model.use((request) => {
    if (request.firstUser === "Look around") return { text: "I looked.", delay: 1500 }
    if (request.lastUser !== "Please launch") return undefined
    const args = { description: "Look around", prompt: "Look around", agent: "general" }
    return request.sinceUser.length === 0 ? { tools: [{ name: "superagents_task", args }] } : { text: "Launched." }
  })
  await tui.type("Please launch")
  await tui.keys("Enter")
  await tui.waitFor(/Background agents 1 running/, { timeout: FIRST_TURN_MS })
  const text = await tui.waitFor((shown) => /✓ Look around/.test(shown) && /Task Progress: 1\/1/.test(shown))
  expect(text).not.toContain("superagents_output tools")
  await tui.waitFor(/120 of 2\.0M tokens\s*\n.*\$0\.000\d of \$5\.00/)
  const stderr = readFileSync(tui.errorFile, "utf8")
  expect(stderr.split("\n").filter((line) => line !== "" && !line.startsWith("npm "))).toEqual([])
}, 150_000)
