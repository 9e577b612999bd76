import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { expect, test } from "vitest"
import { OpencodeLog } from "../../src/opencode/client.ts"
import { FakeClock } from "../support/fake-clock.ts"

const setUp = () => {
  const clock = new FakeClock()
  const written: string[] = []
  const log = async ({ level, message }: { level: string; message: string }) =>
    void written.push(`${level}: ${message}`)
  return { clock, written, log: new OpencodeLog({ app: { log } } as unknown as OpencodeClient, clock) }
}

test("harmless log lines are collected and written together, after ten seconds at the latest", async () => {
  const { clock, written, log } = setUp()
  log.add("info", "one", {})
  log.add("info", "two", {})
  await clock.advance(999)
  log.flush()
  expect(written).toEqual([])
  await clock.advance(1)
  log.flush()
  expect(written).toEqual(["info: superagents: 2 lines"])
  log.add("info", "three", {})
  await clock.advance(9999)
  expect(written).toHaveLength(1)
  await clock.advance(1)
  expect(written.slice(1)).toEqual(["info: superagents: three"])
  log.flush()
  expect(written).toHaveLength(2)
})

test("a warning is logged at once, with the plugin's name like every line", () => {
  const { written, log } = setUp()
  log.add("warn", "careful", {})
  expect(written).toEqual(["warn: superagents: careful"])
})
