import { describe, expect, test } from "vitest"
import {
  answered,
  type Breaker,
  freeRequests,
  inPresent,
  isClosedFor,
  mustWaitForBreaker,
  nextProbe,
  recordRefusal,
  sentThrough,
  type Trip,
  withdraw,
  withoutUnheard,
} from "../../../src/features/rate-limits/breaker.ts"

/** All of an answer to a request that was sent then, or its first part. */
const whole = (breaker: Breaker, taskID: string, sentAt: number) => answered(breaker, { taskID, sentAt, isWhole: true })
const begun = (breaker: Breaker, taskID: string, sentAt: number) =>
  answered(breaker, { taskID, sentAt, isWhole: false })

const LIMIT: Trip = { kind: "limit", why: "The usage limit has been reached" }
const told = (until: number): Trip => ({ ...LIMIT, until })

describe("an open breaker", () => {
  test("a breaker with a known reset time allows one probe at that time", () => {
    const breaker = recordRefusal(undefined, told(9000), 1000)
    expect(breaker).toMatchObject({ closedAt: 1000, opensAt: 9000, stated: true })
    expect(freeRequests(breaker, 8999)).toBe(0)
    expect(freeRequests(breaker, 9000)).toBe(1)
    expect(nextProbe(breaker)).toBe(9000)
    expect(isClosedFor(breaker, "bg_a")).toBe(true)
    expect(isClosedFor(undefined, "bg_a")).toBe(false)
  })

  test("a breaker without a reset time probes after 5 s, then doubles its wait up to five minutes", () => {
    let breaker = recordRefusal(undefined, LIMIT, 0)
    const waits = [breaker.opensAt]
    for (let tries = 0; tries < 8; tries++) {
      const at = breaker.opensAt
      breaker = recordRefusal(sentThrough(breaker, "bg_a", at), LIMIT, at + 100)
      waits.push(breaker.opensAt - at - 100)
    }
    expect(waits).toEqual([5000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000, 300_000])
  })

  test("a breaker waits only 5 s again after an answered probe, if an ordinary request is refused", () => {
    let breaker = recordRefusal(undefined, LIMIT, 0)
    for (const at of [5000, 20_000]) breaker = recordRefusal(sentThrough(breaker, "bg_a", at), LIMIT, at + 100)
    breaker = whole(sentThrough(breaker, "bg_a", 50_000), "bg_a", 50_000)
    expect(recordRefusal(sentThrough(breaker, "bg_b", 50_500), LIMIT, 51_000, 50_500)).toMatchObject({
      opensAt: 56_000,
      stated: false,
    })
  })

  test("a clock that is set back moves all times of a breaker, and one that goes on moves none", () => {
    const HOUR = 3_600_000
    const tripped = recordRefusal(undefined, LIMIT, HOUR)
    const probed = sentThrough(tripped, "bg_a", HOUR + 5000)
    const resets = whole(probed, "bg_a", HOUR + 5000)
    expect(inPresent(tripped, HOUR + 1)).toBe(tripped)
    expect(inPresent(tripped, 0)).toMatchObject({ closedAt: 0, opensAt: tripped.opensAt - HOUR })
    expect(inPresent(probed, 0).probe).toEqual({ taskID: "bg_a", at: 5000 })
    expect(inPresent(resets, 0).recovery).toEqual({ ...resets.recovery, at: (resets.recovery?.at ?? 0) - HOUR })
    expect(resets.recovery).toBeDefined()
  })

  test("a refusal of an older request does not trip the breaker again, but may postpone its reset", () => {
    const breaker = recordRefusal(undefined, LIMIT, 1000)
    expect(recordRefusal(breaker, LIMIT, 1300, 900)).toBe(breaker)
    const later = recordRefusal(breaker, told(60_000), 1300, 900)
    expect(later).toMatchObject({ closedAt: 1000, opensAt: 60_000, stated: true })
    expect(recordRefusal(later, told(50_000), 1400, 900)).toBe(later)
    expect(recordRefusal(later, told(70_000), 1400, 900)).toMatchObject({ opensAt: 70_000 })
  })

  test("a recovering breaker is not tripped again by requests from before it tripped, whatever time they report", () => {
    const opening = whole(recordRefusal(undefined, LIMIT, 0), "bg_a", 6000)
    expect(recordRefusal(opening, LIMIT, 7000, 0)).toBe(opening)
    expect(recordRefusal(opening, told(9000), 7000, 0)).toBe(opening)
  })

  test("a breaker doubles its wait if answers only begin and break off, but not after a complete answer", () => {
    const opening = begun(sentThrough(recordRefusal(undefined, LIMIT, 0), "bg_a", 5000), "bg_a", 5000)
    expect(recordRefusal(opening, LIMIT, 6000, 5000).opensAt).toBe(16_000)
    expect(recordRefusal(whole(opening, "bg_b", 5500), LIMIT, 6000, 5900).opensAt).toBe(11_000)
  })

  test("a breaker follows a short reset time once, but waits longer each time its probe is refused again", () => {
    let breaker = recordRefusal(undefined, told(1000), 0)
    expect(breaker).toMatchObject({ opensAt: 1000, stated: true })
    const waits: number[] = []
    for (const at of [1000, 10_000, 30_000]) {
      breaker = recordRefusal(sentThrough(breaker, "bg_a", at), told(at + 1000), at)
      waits.push(breaker.opensAt - at)
    }
    expect(waits).toEqual([5000, 10_000, 20_000])
    expect(recordRefusal(whole(breaker, "bg_a", 60_000), told(71_000), 70_000, 65_000)).toMatchObject({
      opensAt: 71_000,
    })
  })

  test("a refusal trips a recovering breaker again, and a known reset time restarts its count of refusals", () => {
    const opening = whole(recordRefusal(undefined, LIMIT, 0), "bg_a", 6000)
    expect(recordRefusal(opening, told(9000), 7000)).toMatchObject({ closedAt: 7000, opensAt: 9000, refused: 0 })
    expect(recordRefusal(opening, told(9000), 7000).recovery).toBeUndefined()
  })
})

describe("a probe", () => {
  const breaker = sentThrough(recordRefusal(undefined, told(9000), 1000), "bg_a", 9000)

  test("a breaker lets only one probe through at a time", () => {
    expect(freeRequests(breaker, 9001)).toBe(0)
    expect(nextProbe(breaker)).toBe(39_000)
    expect(isClosedFor(breaker, "bg_a")).toBe(false)
    expect(isClosedFor(breaker, "bg_b")).toBe(true)
    expect(isClosedFor(breaker, undefined)).toBe(true)
  })

  test("a probe or wave request that is silent for half a minute is replaced by another", () => {
    expect(withoutUnheard(breaker, 38_999)).toBe(breaker)
    expect(freeRequests(withoutUnheard(breaker, 39_000), 39_000)).toBe(1)
    const wave = sentThrough(sentThrough(begun(breaker, "bg_a", 9000), "bg_b", 9500), "bg_c", 9600)
    expect(nextProbe(wave)).toBe(39_600)
    expect([
      freeRequests(withoutUnheard(wave, 39_599), 39_599),
      freeRequests(withoutUnheard(wave, 39_600), 39_600),
    ]).toEqual([0, 2])
    const closed = recordRefusal(undefined, LIMIT, 0)
    expect(withoutUnheard(closed, 99_000)).toBe(closed)
  })

  test("an answered probe allows two requests, and no more until one of them is answered", () => {
    const opening = whole(breaker, "bg_a", 9000)
    expect(freeRequests(opening, 9001)).toBe(2)
    const one = sentThrough(opening, "bg_b", 9001)
    const both = sentThrough(one, "bg_c", 9001)
    expect([freeRequests(one, 9001), freeRequests(both, 9001), freeRequests(both, 99_999)]).toEqual([1, 0, 0])
    expect(sentThrough(both, "bg_c", 9002)).toBe(both)
    expect(nextProbe(opening)).toBe(Number.POSITIVE_INFINITY)
  })

  test("each wave after a probe is twice as large, and starts after an answer in the wave before", () => {
    const sizes: number[] = []
    let opening = whole(breaker, "bg_a", 9000)
    for (let wave = 0; wave < 12; wave++) {
      sizes.push(freeRequests(opening, 9001))
      const last = sentThrough(sentThrough(opening, `bg_${wave}a`, 9001), `bg_${wave}b`, 9001)
      expect(whole(last, "bg_other", 9100)).toBe(last)
      opening = whole(last, `bg_${wave}a`, 9100)
      expect(whole(opening, `bg_${wave}b`, 9200)).toBe(opening)
    }
    expect(sizes).toEqual([2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024])
  })

  test("a wave request that ends without an answer is replaced by another", () => {
    const both = sentThrough(sentThrough(whole(breaker, "bg_a", 9000), "bg_b", 9001), "bg_c", 9001)
    expect(freeRequests(withdraw(both, "bg_b"), 9002)).toBe(1)
    expect(withdraw(both, "bg_d")).toBe(both)
  })

  test("only requests that are part of a wave continue, and tasks that have not begun wait", () => {
    const opening = sentThrough(whole(breaker, "bg_a", 9000), "bg_b", 9001)
    expect(isClosedFor(opening, "bg_c")).toBe(false)
    expect([mustWaitForBreaker(opening, "bg_b"), mustWaitForBreaker(opening, "bg_c")]).toEqual([false, true])
    expect([
      mustWaitForBreaker(breaker, "bg_a"),
      mustWaitForBreaker(breaker, "bg_b"),
      mustWaitForBreaker(undefined, "bg_b"),
    ]).toEqual([false, true, false])
  })

  test("an answer to a request from before the breaker tripped does not count as an answered probe", () => {
    expect(whole(breaker, "bg_a", 1000)).toBe(breaker)
    expect(whole(breaker, "bg_a", 1001).recovery).toMatchObject({ wave: 2, gone: [] })
  })
})
