import { describe, expect, test } from "vitest"
import { answered, type Closing, close, isClosedFor, mayGo, nextProbe, probed, unprobed } from "../../src/core/gate.ts"

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
      gate = close(probed(gate, "bg_a", at), LIMIT, at + 100)
      waits.push(gate.opensAt - at - 100)
    }
    expect(waits).toEqual([5000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000, 300_000])
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
    const opening = answered(close(undefined, LIMIT, 0), 6000)
    expect(close(opening, told(9000), 7000)).toMatchObject({ closedAt: 7000, opensAt: 9000, refused: 0 })
    expect(close(opening, told(9000), 7000).opening).toBeUndefined()
  })
})

describe("a probe", () => {
  const gate = probed(close(undefined, told(9000), 1000), "bg_a", 9000)

  test("goes alone", () => {
    expect(mayGo(gate, 9001)).toBe(0)
    expect(nextProbe(gate)).toBe(Number.POSITIVE_INFINITY)
    expect(isClosedFor(gate, "bg_a")).toBe(false)
    expect(isClosedFor(gate, "bg_b")).toBe(true)
    expect(isClosedFor(gate, undefined)).toBe(true)
  })

  test("that comes to nothing leaves its place to another", () => {
    expect(unprobed(gate, "bg_b")).toBe(gate)
    expect(mayGo(unprobed(gate, "bg_a"), 9001)).toBe(1)
  })

  test("that is answered lets two go, and each further answer twice as many", () => {
    const waves = [answered(gate, 9000)]
    for (let more = 0; more < 11; more++) waves.push(answered(waves.at(-1) ?? gate, 9000))
    expect(waves.map((each) => mayGo(each, 9001)).slice(0, 4)).toEqual([2, 4, 8, 16])
    expect(mayGo(waves.at(-1) ?? gate, 9001)).toBe(1024)
    expect(nextProbe(answered(gate, 9000))).toBe(Number.POSITIVE_INFINITY)
    expect(isClosedFor(answered(gate, 9000), "bg_b")).toBe(false)
  })

  test("is not proven by the answer to a request that was under way at the closing", () => {
    expect(answered(gate, 1000)).toBe(gate)
    expect(answered(gate, 1001).opening).toEqual({ next: 2 })
  })
})
