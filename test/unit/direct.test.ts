import { afterEach, expect, test, vi } from "vitest"
import { pastProxy } from "../../src/lib/http.ts"

/** That this keeps a request from the proxy is tried on the real OpenCode: test/e2e/key-loss.test.ts. */

const proxyOf = (url: string) => (pastProxy(new Request(url)) as { proxy?: string }).proxy

afterEach(() => vi.unstubAllEnvs())

test.each(["http_proxy", "HTTP_PROXY"])("a request to a local server bypasses the proxy that is set in %s", (name) => {
  vi.stubEnv(name, "http://proxy:3128")
  expect(proxyOf("http://127.0.0.1:4096/session?limit=5")).toBe("http://127.0.0.1:4096")
  expect(proxyOf("https://127.0.0.1:4096/session")).toBeUndefined()
})

test("a request is not changed where the environment has no proxy", () => {
  for (const name of ["http_proxy", "HTTP_PROXY"]) vi.stubEnv(name, "")
  expect(proxyOf("http://127.0.0.1:4096/session")).toBeUndefined()
})
