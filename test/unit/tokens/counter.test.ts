import { EventEmitter } from "node:events"
import { describe, expect, test } from "vitest"
import {
  ANSWER_MS,
  COOLDOWN_MS,
  type CountOrder,
  type CountThread,
  IDLE_MS,
  TokenCounter,
} from "../../../src/runtime/tokens/counter.ts"
import { FakeClock } from "../../support/fake-clock.ts"

/** A thread that answers with the texts' lengths when it is told to. */
class FakeThread extends EventEmitter implements CountThread {
  readonly orders: CountOrder[] = []
  terminated = false
  postMessage(order: CountOrder): void {
    this.orders.push(order)
  }
  answer(): void {
    for (const { id, texts } of this.orders.splice(0))
      this.emit("message", { id, counts: texts.map(({ length }) => length) })
  }
  async terminate(): Promise<void> {
    this.terminated = true
    this.emit("exit")
  }
}

const counterWith = (start?: () => CountThread) => {
  const time = new FakeClock()
  const clock = Object.assign(time.view(), { advance: (ms: number) => time.advance(ms) })
  const threads: FakeThread[] = []
  const counter = new TokenCounter(
    clock,
    start ??
      (() => {
        const thread = new FakeThread()
        threads.push(thread)
        return thread
      }),
  )
  return { clock, threads, counter }
}

describe("the token counter", () => {
  test("the token counter starts one thread at the first request and gives each caller its own answer", async () => {
    const { threads, counter } = counterWith()
    expect(threads).toHaveLength(0)
    const answers = [counter.count(["a", "bb"]), counter.count(["ccc"])]
    expect(threads).toHaveLength(1)
    threads[0]?.answer()
    expect(await Promise.all(answers)).toEqual([[1, 2], [3]])
  })

  test("the token counter ends an idle thread and starts another at the next request", async () => {
    const { clock, threads, counter } = counterWith()
    const first = counter.count(["a"])
    await clock.advance(IDLE_MS + 1)
    expect(threads[0]?.terminated).toBe(false)
    threads[0]?.answer()
    await first
    await clock.advance(IDLE_MS - 1)
    expect(threads[0]?.terminated).toBe(false)
    await clock.advance(1)
    expect(threads[0]?.terminated).toBe(true)
    const second = counter.count(["bb"])
    threads[1]?.answer()
    expect(await second).toEqual([2])
  })

  test.each<[string, (thread: FakeThread, clock: { advance(ms: number): Promise<void> }) => unknown]>([
    ["fails", (thread) => thread.emit("error", new Error("no"))],
    ["ends", (thread) => thread.emit("exit")],
    ["does not answer", (_, clock) => clock.advance(ANSWER_MS)],
  ])("the token counter gives no count when its thread %s, and does not try again for a while", async (_, fault) => {
    const { clock, threads, counter } = counterWith()
    const answers = [counter.count(["a"]), counter.count(["b"])]
    await fault(threads[0] as FakeThread, clock)
    expect(await Promise.all(answers)).toEqual([undefined, undefined])
    expect(await counter.count(["c"])).toBeUndefined()
    expect(threads).toHaveLength(1)
    await clock.advance(COOLDOWN_MS)
    const later = counter.count(["ddd"])
    threads[1]?.answer()
    expect(await later).toEqual([3])
  })

  test("the token counter gives no count where a thread cannot be started or reached", async () => {
    const none = counterWith(() => {
      throw new Error("no threads here")
    })
    expect(await none.counter.count(["a"])).toBeUndefined()
    const deaf = new FakeThread()
    deaf.postMessage = () => {
      throw new Error("gone")
    }
    deaf.terminate = () => {
      throw new Error("gone")
    }
    expect(await counterWith(() => deaf).counter.count(["a"])).toBeUndefined()
  })

  test("the token counter leaves no timer behind when its thread has ended", async () => {
    const { clock, threads, counter } = counterWith()
    const answer = counter.count(["a"])
    threads[0]?.answer()
    await answer
    expect(clock.pending).toBe(1)
    await clock.advance(IDLE_MS)
    expect([threads[0]?.terminated, clock.pending]).toEqual([true, 0])
  })
})
