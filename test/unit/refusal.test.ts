import { isMainThread } from "node:worker_threads"
import { describe, expect, test, vi } from "vitest"
import { conditionOf, type PassingKind, type Refusal } from "../../src/core/pause.ts"
import { classifyRefusal } from "../../src/features/rate-limits/classify.ts"

const NOW = Date.UTC(2026, 10, 23, 2, 0, 0)
const INVALID = '{"error":{"type":"invalid_request_error","code":null}}'
const sort = (refusal: Partial<Refusal>, hasAnswered = false) =>
  classifyRefusal({ message: "", ...refusal }, NOW, hasAnswered)
/** Seconds from now until the provider opens. */
const opens = (refusal: Partial<Refusal>) => {
  const { until } = sort({ status: 429, ...refusal })
  return until === undefined ? undefined : (until - NOW) / 1000
}

describe("the kind of a refusal", () => {
  test.each<[string, Partial<Refusal>, string]>([
    ["money: 402", { status: 402 }, "money"],
    ["money: a quota that is used up", { status: 429, body: '{"error":{"code":"insufficient_quota"}}' }, "money"],
    ["money: a 400 whose code says so", { status: 400, body: '{"error":{"code":"insufficient_quota"}}' }, "money"],
    ["money: a 403", { status: 403, message: "Insufficient credits" }, "money"],
    ["money: words alone, as an OpenCode tells them", { message: "You have insufficient credits." }, "money"],
    [
      "money: a team without credits",
      { status: 429, message: "Your team has either used all available credits or reached its spending limit." },
      "money",
    ],
    ["money: credits to buy", { status: 403, message: "You can purchase credits in the console." }, "money"],
    ["a limit: free usage, as an OpenCode tells it", { message: "Free usage exceeded, subscribe to Go" }, "limit"],
    ["a limit: tokens in a time", { message: "Tokens per day limit exceeded" }, "limit"],
    ["nothing of the kind: tokens at once", { message: "Input token limit exceeded: 210000 > 200000" }, "other"],
    ["nothing of the kind: calls of one answer", { message: "Tool call limit reached" }, "other"],
    [
      "nothing of the kind: a 413, whatever its code",
      { status: 413, body: '{"error":{"type":"tokens","code":"rate_limit_exceeded"}}' },
      "other",
    ],
    ["a limit: 429", { status: 429, message: "slow down" }, "limit"],
    ["a limit: words alone", { message: "The usage limit has been reached" }, "limit"],
    ["a limit: a 400 whose type says so", { status: 400, body: '{"error": {"type": "rate_limit_error"}}' }, "limit"],
    [
      "a limit: money, but with a time",
      { status: 429, message: "check your billing", headers: { "retry-after": "9" } },
      "limit",
    ],
    [
      "a limit: no word of one, but an OpenCode that was told to wait",
      { message: "Slow down.", next: NOW + 18_000 },
      "limit",
    ],
    [
      "a limit: an OpenCode that waits as long as it can",
      { message: "Slow down.", attempt: 1, next: NOW + 2_147_483_647 },
      "limit",
    ],
    [
      "no limit: an OpenCode that goes by its own schedule",
      { message: "Slow down.", attempt: 2, next: NOW + 4500 },
      "other",
    ],
    ["a limit: a 402 with a time", { status: 402, headers: { "retry-after": "9" } }, "limit"],
    ["overload: 529", { status: 529 }, "overload"],
    ["overload: 503", { status: 503 }, "overload"],
    ["overload: words alone", { message: "Provider is overloaded" }, "overload"],
    ["nothing of the kind: 401", { status: 401, message: "quota of keys" }, "other"],
    ["nothing of the kind: 404", { status: 404 }, "other"],
    ["nothing of the kind: 500", { status: 500, message: "internal error" }, "other"],
    ["nothing of the kind: 400", { status: 400, message: "bad request" }, "other"],
    [
      "a limit: so many tokens in a time, in words alone",
      { message: "Too many tokens, please wait before trying again." },
      "limit",
    ],
    ["a limit: the same by the minute", { message: "Too many input tokens per minute" }, "limit"],
    ["nothing of the kind: too many tokens at once", { message: "This request has too many input tokens." }, "other"],
    [
      "nothing of the kind: what no wait makes smaller",
      { message: "Request too large: tokens per min (TPM): Limit 30000, Requested 31254." },
      "other",
    ],
    ["nothing of the kind: the words of a 400", { status: 400, message: "Rate limit reached for requests" }, "other"],
    ["nothing of the kind: the words of a 400, of money", { status: 400, message: "See our billing page." }, "other"],
    [
      "nothing of the kind: the words of a 400's body",
      { status: 400, body: '{"message":"See our billing page"}' },
      "other",
    ],
    [
      "nothing of the kind: a tool's name in a 400",
      { status: 400, message: "Invalid schema for function 'set_rate_limit'", body: INVALID },
      "other",
    ],
    ["nothing of the kind: the same without a status", { message: `set_rate_limit ${INVALID}` }, "other"],
    ["nothing of the kind: a tool's name in words alone", { message: "No function 'set_rate_limit' here" }, "other"],
    ["nothing of the kind: what words alone blame", { message: "Invalid schema for function set_rate_limit" }, "other"],
    ["a limit: a stream's error that is one", { message: '{"error":{"code":"rate_limit_exceeded"}}' }, "limit"],
    ["nothing of the kind: a picture's size", { status: 400, message: "Image size limit exceeded" }, "other"],
    ["nothing of the kind: the same without a status", { message: "Image size limit exceeded" }, "other"],
    ["nothing of the kind: a full disk", { message: "EDQUOT: disk quota exceeded, write" }, "other"],
    ["nothing of the kind: a busy system", { message: "EAGAIN: resource temporarily unavailable, read" }, "other"],
    ["a limit: capitals that are no system error", { message: "ERROR: quota exceeded" }, "limit"],
    [
      "nothing of the kind: a 422 that echoes a prompt",
      { status: 422, message: "Unprocessable", body: '{"input":"Say \\"type\\": \\"rate_limit\\" of my quota"}' },
      "other",
    ],
    [
      "nothing of the kind: a 429 that is too large",
      { status: 429, message: "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 41233." },
      "other",
    ],
    [
      "nothing of the kind: a 429 that has to be paid for",
      { status: 429, message: "Extra usage is required for long context requests." },
      "other",
    ],
    [
      "nothing of the kind: a 413, though its code names a limit",
      { status: 413, body: '{"error":{"message":"Request too large: Requested 41233","code":"rate_limit_exceeded"}}' },
      "other",
    ],
    ["nothing of the kind: an overflow", { status: 400, message: "maximum context length is 8192 tokens" }, "other"],
  ])("a provider's refusal is classified as %s", (_what, refusal, kind) => {
    expect(sort(refusal).kind).toBe(kind)
  })

  test("a failed connection counts as unreachable only for a model that has answered before", () => {
    expect(conditionOf(sort({ unreachable: true }, true).kind as PassingKind)).toBe("cannot be reached")
    expect([conditionOf("overload"), conditionOf()]).toEqual(["is overloaded", "is at its limit"])
    expect(sort({ message: "Unable to connect" }, true).kind).toBe("unreachable")
    expect(sort({ message: "ECONNRESET: connection reset by peer, read" }, true).kind).toBe("unreachable")
    expect(sort({ unreachable: true }, false).kind).toBe("other")
    expect(sort({ status: 500, message: "socket" }, true).kind).toBe("other")
  })
})

describe("a provider's reset time", () => {
  test.each<[string, Partial<Refusal>, number | undefined]>([
    ["retry-after-ms", { headers: { "retry-after-ms": "1500", "retry-after": "9" } }, 1.5],
    ["retry-after in seconds", { headers: { "retry-after": "18" } }, 18],
    ["retry-after as a date", { headers: { "retry-after": new Date(NOW + 18_000).toUTCString() } }, 18],
    ["resets_at in seconds", { body: `{"error":{"resets_at":${NOW / 1000 + 60}}}` }, 60],
    ["reset_at in milliseconds", { body: `{"reset_at": ${NOW + 60_000}}` }, 60],
    ["reset_at as a date", { body: `{"reset_at":"${new Date(NOW + 60_000).toISOString()}"}` }, 60],
    ["resets_in_seconds", { body: '{"resets_in_seconds": 17880}' }, 17_880],
    ["retry_after in the body", { body: '{"retry_after":7.5}' }, 7.5],
    ["Google's retryDelay", { body: '{"@type":"RetryInfo","retryDelay":"34.07s"}' }, 34.07],
    [
      "the limit with nothing left that opens last",
      {
        headers: {
          "x-ratelimit-remaining-requests": "0",
          "x-ratelimit-reset-requests": "6m0s",
          "x-ratelimit-remaining-tokens": "12",
          "x-ratelimit-reset-tokens": "1h",
        },
      },
      360,
    ],
    [
      "a limit of Anthropic's",
      {
        headers: {
          "anthropic-ratelimit-tokens-remaining": "0",
          "anthropic-ratelimit-tokens-reset": new Date(NOW + 45_000).toISOString(),
        },
      },
      45,
    ],
    [
      "one that does not say what is left",
      { headers: { "anthropic-ratelimit-unified-reset": String(NOW / 1000 + 99) } },
      99,
    ],
    [
      "the only limit, whose header has no name",
      { headers: { "x-ratelimit-remaining": "0", "x-ratelimit-reset": String(NOW + 99_000) } },
      99,
    ],
    [
      "the only limit, of which something is left",
      { headers: { "x-ratelimit-remaining": "3", "x-ratelimit-reset": String(NOW + 99_000) } },
      undefined,
    ],
    [
      "a limit's header in the body",
      { body: `{"error":{"metadata":{"headers":{"X-RateLimit-Reset":"${NOW + 99_000}"}}}}` },
      99,
    ],
    ["a limit's header that says nothing", { headers: { "x-ratelimit-reset-tokens": "soon" } }, undefined],
    ["words: a span", { message: "Please try again in 6m0s. Visit the site." }, 360],
    ["words: a span of words", { message: "Try again in 2 hours 5 minutes please" }, 7500],
    ["words: spans with a word between", { message: "Try again in 5 minutes and 30 seconds." }, 330],
    ["words: a week", { message: "Resets in 1 week" }, 7 * 86_400],
    ["words: no month is a minute", { message: "Try again in 1 month." }, undefined],
    ["words: JSON, as a stream that broke off leaves it", { message: '{"error":{"resets_in_seconds":90}}' }, 90],
    ["a limit's header with a bare number of seconds", { headers: { "x-ratelimit-reset-requests": "30" } }, 30],
    ["words: milliseconds", { message: "retry after 1500 milliseconds" }, 1.5],
    ["words: no span", { message: "try again in 5 bananas" }, undefined],
    ["OpenCode's plan, later than its own schedule", { next: NOW + 18_000_000, attempt: 1 }, 18_000],
    ["OpenCode's own schedule", { next: NOW + 2400, attempt: 1 }, undefined],
    ["OpenCode's own schedule at a later attempt", { next: NOW + 9500, attempt: 3 }, undefined],
    ["OpenCode's plan without an attempt", { next: NOW + 60_000 }, 60],
    ["OpenCode's plan of a limit to ask at once", { status: 429, next: NOW + 5, attempt: 1 }, 1],
    ["OpenCode's plan of a limit, sooner than its own schedule", { message: "Rate limit", next: NOW + 1200 }, 1.2],
    ["OpenCode's plan of an overload to ask at once", { status: 529, next: NOW + 5, attempt: 1 }, undefined],
    ["OpenCode's plan that has passed", { status: 429, next: NOW - 5000, attempt: 1 }, undefined],
    ["nothing", {}, undefined],
    ["no number", { headers: { "retry-after": "soon" } }, undefined],
    ["the past", { headers: { "retry-after": new Date(NOW - 5000).toUTCString() } }, undefined],
    ["nine days", { headers: { "retry-after": String(9 * 86_400) } }, undefined],
    ["a moment: at least a second", { headers: { "retry-after-ms": "20" } }, 1],
    ["retry-after: 0, which means at once", { headers: { "retry-after": "0" }, message: "try again in 20s" }, 1],
    ["retry-after-ms: 0", { headers: { "retry-after-ms": "0.0" } }, 1],
    ["no time at all, then the next source", { body: '{"retry_after":0}', message: "try again in 20s" }, 20],
    ["a body's moment that is past, then its span", { body: '{"resets_at":17,"resets_in_seconds":30}' }, 30],
    [
      "of Anthropic's limits one that lets nothing through",
      {
        headers: {
          "anthropic-ratelimit-unified-5h-status": "rejected",
          "anthropic-ratelimit-unified-5h-reset": String(NOW / 1000 + 600),
          "anthropic-ratelimit-unified-7d-status": "allowed_warning",
          "anthropic-ratelimit-unified-7d-reset": String(NOW / 1000 + 400_000),
        },
      },
      600,
    ],
  ])("a provider's reset time is read correctly from %s", (_what, refusal, seconds) => {
    const found = opens(refusal)
    if (seconds === undefined) expect(found).toBeUndefined()
    else expect(found).toBeCloseTo(seconds, 3)
  })

  test.each<[string, Partial<Refusal>]>([
    ["a negative number", { headers: { "retry-after": "-5", "retry-after-ms": "-1" } }],
    ["no number", { headers: { "retry-after": "NaN", "retry-after-ms": "Infinity" } }],
    [
      "a number with an exponent",
      { headers: { "retry-after": "1e99" }, body: '{"resets_at":1e99,"retry_after":1e99}' },
    ],
    [
      "a number of 400 digits",
      { headers: { "retry-after-ms": "9".repeat(400) }, body: `{"reset_at":${"9".repeat(400)}}` },
    ],
    ["a year", { headers: { "retry-after": String(365 * 86_400) }, body: '{"resets_in_seconds":31536000}' }],
    ["words for a time", { headers: { "x-ratelimit-reset-requests": "\u0000;drop", "retry-after": "<b>" } }],
    ["a body that is no JSON", { body: '{"resets_at":' }],
    ["a body of other kinds", { body: '{"resets_at":null,"reset_at":{},"resets_in_seconds":[],"retryDelay":true}' }],
    ["a time of no day", { message: "Resets at 99:99" }],
  ])("no reset time is read from %s", (_what, refusal) => {
    expect(opens(refusal)).toBeUndefined()
  })

  test("no reset time is read from an oversized header or body", () => {
    const digits = "1".repeat(1_000_000)
    expect(opens({ body: `{"retryDelay":"${digits}"}` })).toBeUndefined()
    expect(opens({ headers: { "x-ratelimit-reset-tokens": digits, "retry-after": digits } })).toBeUndefined()
    expect(opens({ body: `${" ".repeat(10_000_000)}{"resets_in_seconds":9}` })).toBeUndefined()
  })

  test("a reset time is counted from when OpenCode was refused, even if it is read later", () => {
    const words = { message: "Rate limit reached. Try again in 20s" }
    expect(opens({ ...words, attempt: 3, next: NOW + 3000 })).toBeCloseTo(15)
    expect(opens({ ...words, attempt: 1, next: NOW + 2400 })).toBeCloseTo(20)
    expect(opens({ ...words, next: NOW + 500 })).toBeCloseTo(18.5)
  })

  test("a reset at a time of day means the next such time", () => {
    const at = (text: string) => new Date(sort({ status: 429, message: text }).until ?? 0).toISOString().slice(0, 16)
    expect(at("Your limit resets at 14:30.")).toBe("2026-11-23T14:30")
    expect(at("Your limit resets at 1:30")).toBe("2026-11-24T01:30")
    expect(at("Your limit resets at 2:30 PM")).toBe("2026-11-23T14:30")
    expect(at("Your limit resets at 12:15pm")).toBe("2026-11-23T12:15")
    expect(at("Your limit resets at 12:15 AM")).toBe("2026-11-24T00:15")
    expect(at("Your limit resets at 14:30 UTC.")).toBe("2026-11-23T14:30")
  })

  // Stryker runs tests in threads, where TZ has no effect.
  test.runIf(isMainThread)("a reset at a time of day uses the time zone it names, unless that zone is unknown", () => {
    vi.stubEnv("TZ", "Asia/Tokyo")
    try {
      const at = (text: string) => sort({ status: 429, message: text }).until
      expect(at("Resets at 14:30 UTC")).toBe(Date.UTC(2026, 10, 23, 14, 30))
      expect(at("Resets at 14:30 (GMT)")).toBe(Date.UTC(2026, 10, 23, 14, 30))
      expect(at("Resets at 1:30Z")).toBe(Date.UTC(2026, 10, 24, 1, 30))
      expect(at("Resets at 14:30")).toBe(Date.UTC(2026, 10, 23, 5, 30))
      expect(at("Resets at 2:30pm (America/New_York)")).toBeUndefined()
      expect(at("Resets at 14:30 PST.")).toBeUndefined()
      expect(at("Resets at 14:30 but not before")).toBe(Date.UTC(2026, 10, 23, 5, 30))
    } finally {
      vi.unstubAllEnvs()
    }
  })

  test("a reset at a time of day that has just passed counts as unknown, not as tomorrow", () => {
    expect(sort({ status: 429, message: "Resets at 2:00" }).until).toBeUndefined()
    expect(sort({ status: 429, message: "Resets at 1:46" }).until).toBeUndefined()
    expect(sort({ status: 429, message: "Resets at 1:44" }).until).toBe(NOW + 86_400_000 - 16 * 60_000)
  })

  test("a refusal for missing money or without a limit has no reset time", () => {
    expect(sort({ status: 500, headers: { "retry-after": "5" } })).toEqual({ kind: "other" })
    expect(sort({ status: 402 })).toEqual({ kind: "money" })
  })
})
