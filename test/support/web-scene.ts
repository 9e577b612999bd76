import { NO_USAGE } from "../../src/core/task.ts"
import type { HistoryRun, HistoryStep } from "../../src/features/web/opencode/sessions.ts"
import { MINUTE_MS } from "../../src/lib/format.ts"
import { FakeAgents, viewOf } from "./fake-agents.ts"
import { FakeBoard } from "./fake-board.ts"
import { FakePerson } from "./fake-person.ts"
import { outcomeOf } from "./tasks.ts"

const AGENTS = ["explore", "general", "reviewer", "librarian"]

const SUBJECTS = [
  "Map the loader's callers",
  "Find every use of the old cache",
  "Run the slow tests",
  "Read the grinder's manual",
  "Compare the three parsers",
  "Check the migration's dry run",
  "List what the docs promise",
  "Review the retry logic",
]

const ANSWER = `The loader is called from **three** places, and only one of them may fail.

| caller | may fail | tested |
| --- | --- | --- |
| \`src/grinder.ts\` | yes | no |
| \`src/boiler.ts\` | no | yes |
| \`src/cup.ts\` | no | yes |

1. \`grinder\` opens the file a second time when the first read is empty.
2. The others hold the handle they got.

\`\`\`ts
const beans = await load(path, { retries: 2 })
\`\`\`

See [the loader's notes](https://example.com/loader) for why.`

const PATCH = `diff --git a/src/loader.ts b/src/loader.ts
--- a/src/loader.ts
+++ b/src/loader.ts
@@ -12,7 +12,9 @@ export async function load(path: string) {
   const handle = await open(path)
-  const text = await handle.readFile("utf8")
-  return parse(text)
+  try {
+    return parse(await handle.readFile("utf8"))
+  } finally {
+    await handle.close()
+  }
 }
`

/** A working day of a small project, for pictures and for looking at the page. */
export function workingDay(now = Date.now()): { agents: FakeAgents; board: FakeBoard; person: FakePerson } {
  const agents = new FakeAgents()
  const board = new FakeBoard()
  const person = new FakePerson()
  pastAgents(agents, now)
  presentAgents(agents, now)
  presentBoard(board, now)
  presentPerson(person, agents)
  return { agents, board, person }
}

/** What can be answered and chosen, and the limits there are. */
function presentPerson(person: FakePerson, agents: FakeAgents): void {
  person.limits = { ...person.limits, maxCostPerDay: 5 }
  person.spent = { ...NO_USAGE, cost: 0.8814 }
  person.sessions.set("ses_parent", { title: "Move everything to the new loader", folder: "" })
  const always = ["git push *"]
  person.questions.set("per_1", { kind: "permission", permission: "bash", patterns: ["git push origin notes"], always })
  person.onAnswer = ({ sessionID }) => {
    const view = agents.list().find(({ task }) => task.sessionID === sessionID)
    if (view) agents.alter(view.task.id, { asks: [], phase: "working" })
  }
}

function pastAgents(agents: FakeAgents, now: number): void {
  SUBJECTS.forEach((description, index) => {
    const id = `bg_past000${index}`
    const start = now - (190 - index * 22) * MINUTE_MS
    const status = index === 4 ? "error" : index === 6 ? "cancelled" : "completed"
    const reason = { code: "timeout", text: "It ran longer than 30m. Its last word is below." } as const
    agents.set(
      viewOf({
        task: {
          id,
          sessionID: `ses_past${index}`,
          description,
          agent: AGENTS[index % 4],
          model: { provider: "anthropic", id: index % 2 ? "claude-sonnet-4-5" : "claude-haiku-4-5" },
          batch: index % 3 === 0 ? "name:survey" : index % 3 === 1 ? "name:migration" : `auto:${id}`,
          status,
          run: { createdAt: start, startedAt: start, endedAt: start + (9 + ((index * 7) % 23)) * MINUTE_MS },
          outcome: outcomeOf({
            toolCalls: 4 + index,
            reason: status === "error" ? reason : undefined,
            filesChanged: index === 0 ? ["src/loader.ts", "test/loader.test.ts"] : [],
          }),
        },
        toolCalls: 4 + index * 3,
        recentTools: ["grep", "read"],
        usage: { input: 8000 + index * 5300, output: 1200 + index * 310, cost: 0.0123 + index * 0.0179 },
      }),
    )
    agents.answers.set(id, ANSWER)
    agents.stories.set(id, [historyOf(start, index === 4)])
  })
  agents.diffs.set("bg_past0000", [{ file: "src/loader.ts", patch: PATCH, additions: 5, deletions: 2 }])
}

/** A run of a few calls. */
function historyOf(start: number, fails: boolean): HistoryRun {
  const step = (at: number, tool: string, what: string, took: number): HistoryStep => ({
    ...{ tool, what, at: start + at * 1000, endedAt: start + at * 1000 + took },
    state: "done",
  })
  return {
    ...{ generation: 0, at: start, told: [], models: ["anthropic/claude-sonnet-4-5"], cost: 0.0123, earlierSteps: 0 },
    prompt:
      "Find every place that calls the loader. For each, say whether the call may fail, and whether a test covers that.",
    text: ANSWER,
    steps: [
      step(4, "grep", "load\\(", 310),
      step(9, "read", "src/grinder.ts", 42),
      step(21, "read", "src/boiler.ts", 38),
      step(40, "bash", "npm test -- loader", 18_400),
      ...(fails
        ? [
            {
              ...step(75, "webfetch", "https://example.com/parsers", 30_000),
              state: "failed" as const,
              error: "Timed out",
            },
          ]
        : []),
      step(90, "edit", "src/loader.ts", 61),
    ],
  }
}

function presentAgents(agents: FakeAgents, now: number): void {
  const base = { status: "running", batch: "name:migration" } as const
  const model = { provider: "anthropic", id: "claude-sonnet-4-5" }
  agents.set(
    viewOf({
      task: {
        ...base,
        id: "bg_k3f9x2aa",
        sessionID: "ses_now1",
        description: "Move the grinder to the new loader",
        agent: "general",
        model,
        run: { createdAt: now - 11 * MINUTE_MS, startedAt: now - 11 * MINUTE_MS },
      },
      phase: "working",
      toolCalls: 23,
      recentTools: ["read", "edit", "bash"],
      lastText: "The grinder now asks the loader once. Running its tests.",
      signAge: 3000,
      usage: { input: 48_200, output: 6100, cost: 0.2214 },
    }),
    viewOf({
      task: {
        ...base,
        id: "bg_w8m2p4bb",
        sessionID: "ses_now2",
        description: "See whether the boiler still needs its cache",
        agent: "explore",
        fork: { messages: 12, tokens: 9000, droppedMessages: 0, cutResults: 1 },
        run: { createdAt: now - 4 * MINUTE_MS, startedAt: now - 4 * MINUTE_MS },
      },
      phase: "working",
      toolCalls: 7,
      recentTools: ["glob", "grep"],
      signAge: 9000,
      usage: { input: 12_700, output: 900, cost: 0.0312 },
    }),
    viewOf({
      task: {
        ...base,
        id: "bg_r5t7y1cc",
        sessionID: "ses_now3",
        description: "Publish the notes of the release",
        agent: "librarian",
        batch: "auto:bg_r5t7y1cc",
        run: { createdAt: now - 6 * MINUTE_MS, startedAt: now - 6 * MINUTE_MS },
      },
      phase: "waiting for permission",
      toolCalls: 5,
      recentTools: ["bash"],
      signAge: 95_000,
      asks: [
        {
          id: "per_1",
          sessionID: "ses_now3",
          kind: "permission",
          what: "bash: git push origin notes",
          askedAt: now - 95_000,
        },
      ],
      usage: { input: 9100, output: 1400, cost: 0.0287 },
    }),
  )
}

function presentBoard(board: FakeBoard, now: number): void {
  board.owners = AGENTS.map((name) => ({ name, description: "" }))
  const at = (minutes: number) => new Date(now - minutes * MINUTE_MS).toISOString()
  const step = (title: string, done: boolean, taskId?: string) => ({ title, done, taskId })
  for (const [id, title] of [
    ["1", "Weigh decaf beans too"],
    ["2", "Write down how to descale"],
    ["3", "Drop the second config file"],
  ] as const) {
    board.archive.push({
      ...board.put({ id, title, owner: AGENTS[Number(id) % 4], createdAt: at(600) }),
      status: id === "3" ? "canceled" : "done",
      archivedAt: at(300 - Number(id) * 40),
    })
    board.tasks.delete(id)
  }
  board.put(
    {
      id: "5",
      title: "Migrate the loader",
      owner: "general",
      createdAt: at(240),
      threadId: "ses_thread5",
      description:
        "All callers use the **new loader**, the old one is gone, and the tests say so.\n\n- keep the public names\n- no second read of a file",
      steps: [
        step("Map the callers", true),
        step("Move the boiler", true),
        step("Move the grinder", false, "6"),
        step("Delete the old loader", false),
        step("Say so in the changelog", false),
      ],
      resources: [
        { type: "url", value: "https://example.com/issues/41", label: "Issue 41" },
        { type: "file", value: "/home/me/beans/docs/loader.md" },
      ],
    },
    { state: "waits", reason: "#6", text: "waits for #6" },
  )
  board.put(
    {
      id: "6",
      title: "Move the grinder to the new loader",
      owner: "reviewer",
      createdBy: "general",
      createdAt: at(40),
      threadId: "ses_thread6",
      steps: [step("Write the failing test", true), step("Move it", true), step("Run everything", false)],
    },
    { state: "running", text: "running" },
  )
  board.put(
    { id: "7", title: "Choose a licence for the recipes", owner: "librarian", threadId: "ses_thread7" },
    {
      state: "needs you",
      reason: "CC BY or CC BY-SA? Two recipes come from a book that wants the latter.",
      text: "needs you: CC BY or CC BY-SA?",
    },
  )
  board.put(
    { id: "8", title: "Nightly look at flaky tests", owner: "explore", steps: [step("Run them ten times", false)] },
    { state: "next run", reason: "Sat 02:00", text: "next run Sat 02:00" },
  )
  board.put(
    { id: "9", title: "Update the dependencies", owner: "general" },
    { state: "rests", reason: "three runs failed in a row", text: "rests: three runs failed in a row" },
  )
  board.put({ id: "10", title: "Think about a second boiler", owner: "plan", status: "draft" })
  board.put({ id: "11", title: "Ask users what they miss", owner: "librarian", status: "draft" })
}
