import { expect, test } from "vitest"
import type { LogFields } from "../../src/core/ports.ts"
import { traced } from "../../src/opencode/client.ts"

const tracing = (fetch: (request: Request) => Promise<Response>) => {
  const lines: LogFields[] = []
  return { lines, fetch: traced(fetch, (fields) => lines.push(fields)) }
}
const post = (path: string) =>
  new Request(`http://host.test${path}`, {
    method: "POST",
    body: '{"text":"a secret prompt"}',
    headers: { authorization: "Basic a-secret" },
  })

test("the trace of an OpenCode call has method, path, status and time, but no prompt or secret", async () => {
  const { lines, fetch } = tracing(async () => new Response("a secret answer", { status: 202 }))
  const response = await fetch(post("/session/ses_1/prompt_async?directory=a-secret-folder"))
  expect(await response.text()).toBe("a secret answer")
  expect(lines).toEqual([{ method: "POST", path: "/session/ses_1/prompt_async", status: 202, ms: expect.any(Number) }])
  expect(JSON.stringify(lines)).not.toContain("secret")
})

test("an OpenCode call without an answer is traced and fails with its own error", async () => {
  const failure = new TypeError("refused")
  const { lines, fetch } = tracing(() => Promise.reject(failure))
  await expect(fetch(post("/session"))).rejects.toBe(failure)
  expect(lines).toMatchObject([{ path: "/session", status: "no answer" }])
})

test("calls that write the log are not traced themselves", async () => {
  const { lines, fetch } = tracing(async () => new Response())
  await fetch(post("/log?directory=x"))
  expect(lines).toEqual([])
})
