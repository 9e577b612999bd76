import { describe, expect, test } from "vitest"
import {
  answered,
  type Closing,
  close,
  isClosedFor,
  isHeldBack,
  mayGo,
  nextProbe,
  went,
  withdrawn,
} from "../../src/core/gate.ts"

const LIMIT: Closing = { kind: "limit", why: "The usage limit has been reached" }
const told = (until: number): Closing => ({ ...LIMIT, until })

describe("a gate that is closed", () => {
  test("with a time opens then, for one probe", () => {
    const gate = close(undefined, told(9000), 1000)
    expect(gate).toMatchObject({ closedAt: 1000, opensAt: 9000, told: true })
    expect(mayGo(gate, 8999)).toBe(0)
    expect(mayGo(gate, 9000)).toBe(1)
    expect(nextProbe(gate)).toBe(9000)
    expect(isClosedFor(gate, "bg_a")).toBe(true)
    expect(isClosedFor(undefined, "bg_a")).toBe(false)
  })

  test("without a time is tried after 5 s, then twice as late with each refused probe, five minutes at most", () => {
    let gate = close(undefined, LIMIT, 0)
    const waits = [gate.opensAt]
    for (let tries = 0; tries < 8; tries++) {
      const at = gate.opensAt
      gate = close(went(gate, "bg_a", at), LIMIT, at + 100)
      waits.push(gate.opensAt - at - 100)
    }
    expect(waits).toEqual([5000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000, 300_000])
  })

  test("is tried after 5 s again where a probe was answered since: what is refused then is no probe", () => {
    let gate = close(undefined, LIMIT, 0)
    for (const at of [5000, 20_000]) gate = close(went(gate, "bg_a", at), LIMIT, at + 100)
    gate = answered(went(gate, "bg_a", 50_000), "bg_a", 50_000)
    expect(close(went(gate, "bg_b", 50_500), LIMIT, 51_000, 50_500)).toMatchObject({ opensAt: 56_000, told: false })
  })

  test("is not closed anew by what was under way, but believes a time that it tells", () => {
    const gate = close(undefined, LIMIT, 1000)
    expect(close(gate, LIMIT, 1300, 900)).toBe(gate)
    const later = close(gate, told(60_000), 1300, 900)
    expect(later).toMatchObject({ closedAt: 1000, opensAt: 60_000, told: true })
    expect(close(later, told(50_000), 1400, 900)).toBe(later)
    expect(close(later, told(70_000), 1400, 900)).toMatchObject({ opensAt: 70_000 })
  })

  test("is closed anew by a refusal while it opens, and begins to count again where a time is told", () => {
    const opening = answered(close(undefined, LIMIT, 0), "bg_a", 6000)
    expect(close(opening, told(9000), 7000)).toMatchObject({ closedAt: 7000, opensAt: 9000, refused: 0 })
    expect(close(opening, told(9000), 7000).opening).toBeUndefined()
  })
})

describe("a probe", () => {
  const gate = went(close(undefined, told(9000), 1000), "bg_a", 9000)

  test("goes alone", () => {
    expect(mayGo(gate, 9001)).toBe(0)
    expect(nextProbe(gate)).toBe(Number.POSITIVE_INFINITY)
    expect(isClosedFor(gate, "bg_a")).toBe(false)
    expect(isClosedFor(gate, "bg_b")).toBe(true)
    expect(isClosedFor(gate, undefined)).toBe(true)
  })

  test("that comes to nothing leaves its place to another", () => {
    expect(withdrawn(gate, "bg_b")).toBe(gate)
    expect(mayGo(withdrawn(gate, "bg_a"), 9001)).toBe(1)
  })

  test("that is answered lets two go, and no more before one of them is answered", () => {
    const opening = answered(gate, "bg_a", 9000)
    expect(mayGo(opening, 9001)).toBe(2)
    const one = went(opening, "bg_b", 9001)
    const both = went(one, "bg_c", 9001)
    expect([mayGo(one, 9001), mayGo(both, 9001), mayGo(both, 99_999)]).toEqual([1, 0, 0])
    expect(went(both, "bg_c", 9002)).toBe(both)
    expect(nextProbe(opening)).toBe(Number.POSITIVE_INFINITY)
  })

  test("is followed by waves twice as large, each after an answer to one of the wave before", () => {
    const sizes: number[] = []
    let opening = answered(gate, "bg_a", 9000)
    for (let wave = 0; wave < 12; wave++) {
      sizes.push(mayGo(opening, 9001))
      const last = went(went(opening, `bg_${wave}a`, 9001), `bg_${wave}b`, 9001)
      expect(answered(last, "bg_other", 9100)).toBe(last)
      opening = answered(last, `bg_${wave}a`, 9100)
      expect(answered(opening, `bg_${wave}b`, 9200)).toBe(opening)
    }
    expect(sizes).toEqual([2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024])
  })

  test("is followed by others in the place of one that comes to nothing", () => {
    const both = went(went(answered(gate, "bg_a", 9000), "bg_b", 9001), "bg_c", 9001)
    expect(mayGo(withdrawn(both, "bg_b"), 9002)).toBe(1)
    expect(withdrawn(both, "bg_d")).toBe(both)
  })

  test("is followed by who has gone in a wave; what has not begun does not begin beside them", () => {
    const opening = went(answered(gate, "bg_a", 9000), "bg_b", 9001)
    expect(isClosedFor(opening, "bg_c")).toBe(false)
    expect([isHeldBack(opening, "bg_b"), isHeldBack(opening, "bg_c")]).toEqual([false, true])
    expect([isHeldBack(gate, "bg_a"), isHeldBack(gate, "bg_b"), isHeldBack(undefined, "bg_b")]).toEqual([
      false,
      true,
      false,
    ])
  })

  test("is not proven by the answer to a request that was under way at the closing", () => {
    expect(answered(gate, "bg_a", 1000)).toBe(gate)
    expect(answered(gate, "bg_a", 1001).opening).toEqual({ wave: 2, gone: [] })
  })
})
