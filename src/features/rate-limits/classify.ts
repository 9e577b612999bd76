import type { PassingKind, Refusal } from "../../core/pause.ts"
import type { OpencodeEvent } from "../../core/ports.ts"
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../lib/format.ts"

/**
 * Classifies a provider's refusals: whether a refusal passes by itself, and when. The formats were seen in answers of
 * providers and in what OpenCode makes of such answers.
 */

/**
 * `money`: credit is used up, which waiting does not change. `other`: a wrong request, or a failure that is no limit.
 */
type RefusalKind = PassingKind | "money" | "other"

/** `until`: time from which requests are possible again, as the provider states. */
export type ClassifiedRefusal = { readonly kind: RefusalKind; readonly until?: number }

const SECOND_MS = 1000
/** A shorter wait is raised to this. */
const SOONEST_MS = SECOND_MS
/** A longer wait is taken for a mistake of the provider. */
const LATEST_MS = 8 * DAY_MS
/** OpenCode retries after 2 s, doubled with each attempt, plus up to a quarter. */
const OPENCODE_FIRST_MS = 2000
const OPENCODE_JITTER = 1.25
/** Longest part of a body, and of a value, that is read. A limit is needed because a provider may send any amount. */
const MOST_BODY_CHARS = 16_384
const MOST_VALUE_CHARS = 64
/** Tolerated deviation from OpenCode's own retry schedule. */
const OPENCODE_SLACK_MS = 500

/** Messages of requests that are too large: no wait and no payment helps, at any status. */
const TOO_MUCH = /request too large|extra usage is required/i
/** Messages of context overflow. A number of tokens in a period of time is a rate limit instead. */
const OVERFLOW =
  /context.{0,3}length|context window|maximum context|prompt is too long|too many (input )?tokens(?!.{0,40}\b(wait|per (second|min|minute|hour|day))\b)/i
const MONEY =
  /insufficient[_ ]quota|credit balance|insufficient (credits?|funds|balance)|billing|payment required|available credits|purchase (more )?credits|spending limit/i
const LIMIT =
  /rate.?limit|usage.?limit|usage exceeded|too many requests|(?<!disk |storage )quota|resource.?exhausted|too many (input )?tokens|(?<!\b(size|length|depth|count|memory|file|context|tokens?|call) )limit (has been |was )?(reached|exceeded)|reached (your|the) .{0,40}limit/i
const OVERLOAD = /overloaded|at capacity|over capacity|no capacity|temporarily unavailable/i
/** OpenCode's messages for a request without any answer. */
const UNREACHABLE = /unable to connect|econn|fetch failed|socket|connection (was |has been )?(closed|reset|refused)/i
/** A fault of this machine, not of a provider. Example: `EDQUOT: disk quota exceeded`. */
const SYSTEM_ERROR = /\b(?!ERROR\b)E[A-Z]{2,}\d*[:,] (?=[a-z])/
/** An error's type and code, in a body or in a message with a JSON body. */
const CODES = /"(?:type|code|status|reason)"\s*:\s*"([^"\\]{1,64})"/g
/**
 * Codes or words that say that the request is wrong. OpenCode retries even such requests if the text mentions limits.
 */
const WRONG_REQUEST =
  /invalid[_ ](request|argument|schema|parameter|value|type|tool|function|image)|unsupported|unrecognized/i
/** Names in quotes. They come from the request, such as a tool's name, so they are not searched for words. */
const QUOTED = /(['"`])[\w.-]{1,64}\1/g

/** Statuses of wrong requests: waiting never helps, whatever the text. */
const WRONG_STATUSES = [401, 404, 413]
/**
 * 4xx statuses whose whole text is searched. The text of any other 4xx status may quote anything from the request: tool
 * names, prompt, pictures.
 */
const WORDED_STATUSES = [402, 403, 429]

/** `hasAnswered`: this model has answered in this process, so a failed connection is not a wrong address. */
export function classifyRefusal(given: Refusal, now: number, hasAnswered: boolean): ClassifiedRefusal {
  const refusal = { ...given, body: given.body?.slice(0, MOST_BODY_CHARS) }
  const until = timeOf(refusal, now)
  const kind = kindOf(refusal, until !== undefined, hasAnswered, now)
  if (kind === "money" || kind === "other") return { kind }
  const at = until ?? (kind === "limit" ? soonInHost(refusal, now) : undefined)
  return at === undefined ? { kind } : { kind, until: at }
}

function kindOf(refusal: Refusal, hasTime: boolean, hasAnswered: boolean, now: number): RefusalKind {
  const { status, message } = refusal
  const text = tellingIn(refusal)
  if (TOO_MUCH.test(text)) return "other"
  if (!hasTime && (status === 402 || (mayBeMoney(status) && MONEY.test(text)))) return "money"
  if (OVERFLOW.test(text) && status !== 429) return "other"
  if (status !== undefined && WRONG_STATUSES.includes(status)) return "other"
  if (status === 429 || status === 402 || LIMIT.test(text)) return "limit"
  if (status === 529 || status === 503 || OVERLOAD.test(text)) return "overload"
  // OpenCode waits longer than its own schedule only if the provider stated the time, so this is a limit, whatever the
  // text says.
  if (status === undefined && inHost(refusal, now) !== undefined) return "limit"
  const failed = refusal.unreachable || (status === undefined && UNREACHABLE.test(message))
  return failed && hasAnswered ? "unreachable" : "other"
}

/**
 * Text that is searched for a limit: all words, or only type and code where the status or the text says that the
 * request is wrong.
 */
function tellingIn({ status, message, body = "" }: Refusal): string {
  const text = `${message} ${body}`
  const codes = Array.from(text.matchAll(CODES), ([, code]) => code).join(" ")
  const blames = status !== undefined && status >= 400 && status < 500
  const isWrong = blames ? !WORDED_STATUSES.includes(status) : WRONG_REQUEST.test(`${codes} ${message}`)
  return isWrong || SYSTEM_ERROR.test(message) ? codes : `${text.replace(QUOTED, "")} ${codes}`
}

/** Whether a refusal with this status may mean lack of credit, if its words or its code say so. */
const mayBeMoney = (status: number | undefined): boolean => status === undefined || (status >= 400 && status < 500)

/**
 * Time at which the provider may be asked again. The first future time is taken from header, body, rate limit headers,
 * message and OpenCode's retry, in this order.
 */
function timeOf(refusal: Refusal, now: number): number | undefined {
  const { headers = {}, message } = refusal
  // If a stream broke off, the error body is in the message.
  const body = `${refusal.body ?? ""} ${message}`
  const at = refusedAt(refusal, now)
  const sources = [
    () => (RETRY_FIELDS.some((name) => isZero(headers[name])) ? now + SOONEST_MS : undefined),
    () => after(headers["retry-after-ms"], at, 1),
    () => after(headers["retry-after"], at, SECOND_MS) ?? dateOf(headers["retry-after"]),
    () => timestampIn(fieldIn(body, "resets_at|reset_at|x-ratelimit-reset")),
    () => after(fieldIn(body, "resets_in_seconds|retry_after"), at, SECOND_MS),
    () => span(fieldIn(body, "retryDelay"), at),
    () => inLimits(headers, at),
    () => inWords(message, at),
    () => inHost(refusal, now),
  ]
  for (const source of sources) {
    const time = source()
    if (time !== undefined && time > now && time - now <= LATEST_MS) return Math.max(time, now + SOONEST_MS)
  }
  return undefined
}

const RETRY_FIELDS = ["retry-after-ms", "retry-after"]
/** Whether a `retry-after` header is 0, which means at once. */
const isZero = (value: string | undefined): boolean => value !== undefined && /^\s*0(\.0+)?\s*$/.test(shortened(value))

function after(value: string | undefined, now: number, unit: number): number | undefined {
  if (value === undefined || !/^\s*\d+(\.\d+)?\s*$/.test(shortened(value))) return undefined
  return now + Number(value) * unit
}

function dateOf(value: string | undefined): number | undefined {
  const time = value === undefined ? Number.NaN : Date.parse(shortened(value))
  return Number.isNaN(time) ? undefined : time
}

const shortened = (value: string): string => value.slice(0, MOST_VALUE_CHARS)

/** Finds a field of a JSON body at any depth. */
const fieldIn = (body: string, names: string): string | undefined =>
  new RegExp(`"(?:${names})"\\s*:\\s*"?([^",}\\]]+)"?`, "i").exec(body)?.[1]?.trim()

/** Time given as seconds or milliseconds since the epoch, or as a date. */
function timestampIn(value: string | undefined): number | undefined {
  if (value === undefined) return undefined
  if (!/^\d+(\.\d+)?$/.test(shortened(value))) return dateOf(value)
  const number = Number(value)
  return number < 1e11 ? number * SECOND_MS : number
}

const LIMIT_HEADER = /^(anthropic-ratelimit-(.+)-reset|x-ratelimit-reset(-.+)?)$/
/** Anthropic's status of a limit that is not used up. */
const ALLOWED = /^\s*allowed/

/**
 * Latest reset time of the limits that are used up. A limit without a remaining count is taken as used up, unless its
 * status allows requests.
 */
function inLimits(headers: Readonly<Record<string, string>>, now: number): number | undefined {
  const times = Object.entries(headers).flatMap(([name, value]) => {
    const [match, , anthropic, other = ""] = LIMIT_HEADER.exec(name) ?? []
    if (match === undefined) return []
    const left = headers[anthropic ? `anthropic-ratelimit-${anthropic}-remaining` : `x-ratelimit-remaining${other}`]
    if (left !== undefined && Number(left) > 0) return []
    if (ALLOWED.test(headers[`anthropic-ratelimit-${anthropic}-status`] ?? "")) return []
    const time = span(value, now) ?? (isSpanInSeconds(value) ? after(value, now, SECOND_MS) : timestampIn(value))
    return time === undefined ? [] : [time]
  })
  return times.length === 0 ? undefined : Math.max(...times)
}

/**
 * Whether a value is a plain number of seconds from now. As seconds since the epoch, such a small number would be a
 * date in the 1970s.
 */
const isSpanInSeconds = (value: string): boolean => /^\s*\d{1,8}(\.\d+)?\s*$/.test(shortened(value))

const UNITS_MS = { w: 7 * DAY_MS, d: DAY_MS, h: HOUR_MS, m: MINUTE_MS, s: SECOND_MS, ms: 1 } as const
const UNIT =
  "(ms|msecs?|milliseconds?|w|weeks?|d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?)(?![a-z])[\\s,]*(?:and\\s+)?"
const PIECE = `(\\d+(?:\\.\\d+)?)\\s*${UNIT}`
const PIECES = new RegExp(`^(?:${PIECE})+`, "i")

/** End of a duration with units, such as `6m0s`, `1.5s`, `34.07s`, `500ms` or `2 hours`. */
function span(value: string | undefined, now: number): number | undefined {
  const text = shortened(value ?? "").trim()
  return PIECES.exec(text)?.[0] === text ? spanBefore(text, now) : undefined
}

/** End of the duration at the start of a text. Words after the duration are ignored. */
function spanBefore(text: string, now: number): number | undefined {
  const [found] = PIECES.exec(shortened(text)) ?? []
  if (found === undefined) return undefined
  const pieces = [...found.matchAll(new RegExp(PIECE, "gi"))]
  return now + pieces.reduce((sum, [, number, unit]) => sum + Number(number) * unitOf(String(unit)), 0)
}

const unitOf = (unit: string): number =>
  UNITS_MS[/^m(s|il)/i.test(unit) ? "ms" : (unit.charAt(0).toLowerCase() as keyof typeof UNITS_MS)]

const IN_WORDS = /(?:try again|retry|reset(?:s|ting)?)(?: again)? (?:in|after) (?=\d)/i
const AT_WORDS = /(?:try again|retry|resets?)(?: again)? at (\d{1,2}):(\d{2})\s*(am\b|pm\b)?(.*)/i
/** Time zone after a time of day, as `UTC`, `PST` or `(America/New_York)`. */
const ZONE = /^\s*\(?(UTC|GMT|Z|[A-Z]{2,4}T|[A-Z]\w+\/\w+)\b/
/** A time of day that passed at most this long ago means now. One that passed earlier means tomorrow. */
const JUST_COME_MS = 15 * MINUTE_MS

/**
 * Reads a time from a message such as "try again in 6m0s" or "resets at 14:30". A time of day without a zone is taken
 * in this machine's zone.
 */
function inWords(message: string, now: number): number | undefined {
  const spanned = IN_WORDS.exec(message)
  const found = spanned ? spanBefore(message.slice(spanned.index + spanned[0].length), now) : undefined
  if (found !== undefined) return found
  const [, hour, minute, half, rest = ""] = AT_WORDS.exec(message) ?? []
  if (hour === undefined || Number(hour) > 23 || Number(minute) > 59) return undefined
  const [, zone] = ZONE.exec(rest) ?? []
  const isUniversal = zone === "UTC" || zone === "GMT" || zone === "Z"
  if (zone !== undefined && !isUniversal) return undefined
  const hours = half === undefined ? Number(hour) : (Number(hour) % 12) + (half.toLowerCase() === "pm" ? 12 : 0)
  const time = new Date(now)
  if (isUniversal) time.setUTCHours(hours, Number(minute), 0, 0)
  else time.setHours(hours, Number(minute), 0, 0)
  if (time.getTime() > now) return time.getTime()
  // A provider's clock may be some minutes slow: a time that has just passed does not mean tomorrow.
  return now - time.getTime() < JUST_COME_MS ? undefined : time.getTime() + DAY_MS
}

/**
 * Time at which a refusal arrived. OpenCode may report a refusal later, so the time is computed from its retry
 * schedule.
 */
function refusedAt(refusal: Refusal, now: number): number {
  const { next, attempt = 1 } = refusal
  if (next === undefined || inHost(refusal, now) !== undefined) return now
  return Math.min(now, next - OPENCODE_FIRST_MS * 2 ** (Math.max(1, attempt) - 1))
}

/** Time of OpenCode's next attempt if it is later than OpenCode's own schedule: then the provider stated the time. */
function inHost({ next, attempt = 1 }: Refusal, now: number): number | undefined {
  if (next === undefined) return undefined
  const own = OPENCODE_FIRST_MS * 2 ** (Math.max(1, attempt) - 1) * OPENCODE_JITTER + OPENCODE_SLACK_MS
  return next - now > own ? next : undefined
}

/**
 * Time of OpenCode's next attempt if it is sooner than OpenCode's own schedule: then the provider stated the time. A
 * refusal that is read late looks alike, so this counts for a limit only: a limit trips the breaker in any case.
 */
function soonInHost({ next = Number.NEGATIVE_INFINITY, attempt = 1 }: Refusal, now: number): number | undefined {
  const isSoon = next - now < OPENCODE_FIRST_MS * 2 ** (attempt - 1) - OPENCODE_SLACK_MS
  return isSoon && next > now - OPENCODE_SLACK_MS ? Math.max(next, now + SOONEST_MS) : undefined
}

/** Refusal in an event; undefined for other events. */
export function refusalIn(event: OpencodeEvent): Refusal | undefined {
  if (event.type === "active") return event.activity.type === "retry" ? event.activity : undefined
  if (event.type !== "error" || event.error.aborted) return undefined
  return { message: event.error.message, ...event.refusal }
}
