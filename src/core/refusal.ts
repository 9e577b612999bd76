/**
 * What a provider's refusal means: whether it passes by itself, and when. Pure; all times are milliseconds since the
 * epoch. What the parts of a refusal look like was seen on the providers' own answers and on what the host makes of them.
 */

/** A provider's answer, as far as it was read. Headers have lower-case names. */
export type Answer = {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
  /** When it came: what it tells of the time to wait counts from then. */
  readonly at: number
}

/** What is known of a refusal. From the host's events often the message alone; `at` is now where it is absent. */
export type Refusal = Partial<Answer> & {
  readonly message: string
  /** When the host will ask again by itself, and how often it has asked by now. */
  readonly next?: number
  readonly attempt?: number
  /** The connection failed: nobody answered. */
  readonly unreachable?: boolean
}

/** What passes by itself, and what the model then is, in words. */
const CONDITIONS = { limit: "is at its limit", overload: "is overloaded", unreachable: "cannot be reached" } as const

/**
 * - `limit`: so many requests or tokens in a time;
 * - `overload`: the provider has no room just now;
 * - `unreachable`: the connection failed.
 */
export type PassingKind = keyof typeof CONDITIONS
export const PASSING_KINDS = Object.keys(CONDITIONS) as [PassingKind, ...PassingKind[]]

/** `is at its limit`: what a model is that refused so. A record that tells no kind is of an earlier version. */
export const conditionOf = (kind: PassingKind = "limit"): string => CONDITIONS[kind]

/**
 * - `money`: nothing is left to pay with, which does not pass by waiting;
 * - `other`: a wrong request, or a failure that is no limit.
 */
type RefusalKind = PassingKind | "money" | "other"

/** `until`: when the provider says that it opens; absent where it does not say. */
export type Sorted = { readonly kind: RefusalKind; readonly until?: number }

const SECOND_MS = 1000
const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
/** A time that is sooner is taken as this soon. */
const SOONEST_MS = SECOND_MS
/** A time that is later is believed to be a mistake. */
const LATEST_MS = 8 * DAY_MS
/** The host asks again after 2 s, doubled by each attempt, and up to a quarter more. */
const HOST_FIRST_MS = 2000
const HOST_JITTER = 1.25
/** What is looked at of a body, and of a single value: a provider may send anything. */
const MOST_BODY_CHARS = 16_384
const MOST_VALUE_CHARS = 64
/** What the host's own schedule may be passed by without a reason. */
const HOST_SLACK_MS = 500

/** What no wait makes smaller, or pays for: so it is at any status. */
const TOO_MUCH = /request too large|extra usage is required/i
/** Too much at once; so many tokens in a time are a limit. */
const OVERFLOW =
  /context.{0,3}length|context window|maximum context|prompt is too long|too many (input )?tokens(?!.{0,40}\b(wait|per (second|min|minute|hour|day))\b)/i
const MONEY = /insufficient[_ ]quota|credit balance|insufficient (credits?|funds|balance)|billing|payment required/i
const LIMIT =
  /rate.?limit|usage.?limit|too many requests|(?<!disk |storage )quota|resource.?exhausted|too many (input )?tokens|(?<!\b(size|length|depth|count|memory|file|context) )limit (has been |was )?(reached|exceeded)|reached (your|the) .{0,40}limit/i
const OVERLOAD = /overloaded|at capacity|over capacity|no capacity|temporarily unavailable/i
/** What a host says where no answer came. */
const UNREACHABLE = /unable to connect|econn|fetch failed|socket|connection (was |has been )?(closed|reset|refused)/i
/** `EDQUOT: disk quota exceeded`: this machine's own trouble, not a provider's. */
const SYSTEM_ERROR = /\b(?!ERROR\b)E[A-Z]{2,}\d*[:,] (?=[a-z])/
/** An error's type and code, in a body or in a message that is one. */
const CODES = /"(?:type|code|status|reason)"\s*:\s*"([^"\\]{1,64})"/g
/** A code, or words, that blame the request: OpenCode tries such a one again, too, where its text speaks of limits. */
const WRONG_REQUEST =
  /invalid[_ ](request|argument|schema|parameter|value|type|tool|function|image)|unsupported|unrecognized/i
/** A name that is quoted is of the request, as that of a tool. */
const QUOTED = /(['"`])[\w.-]{1,64}\1/g

/** Wrong requests: whatever they say, they are wrong the next time, too. */
const WRONG_STATUSES = [401, 404]
/** Of all others that blame the request, the words may be anything: names of the request's own tools, its prompt, its pictures. */
const WORDED_STATUSES = [402, 403, 429]

/** `hasAnswered`: this model has answered in this process, so that a failed connection is no wrong address. */
export function sortRefusal(given: Refusal, now: number, hasAnswered: boolean): Sorted {
  const refusal = { ...given, body: given.body?.slice(0, MOST_BODY_CHARS) }
  const until = timeOf(refusal, now)
  const kind = kindOf(refusal, until !== undefined, hasAnswered, now)
  return until === undefined || kind === "money" || kind === "other" ? { kind } : { kind, until }
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
  // A host that waits for longer than it would by itself was told to, whatever the words are.
  if (status === undefined && inHost(refusal, now) !== undefined) return "limit"
  const failed = refusal.unreachable || (status === undefined && UNREACHABLE.test(message))
  return failed && hasAnswered ? "unreachable" : "other"
}

/** What of a refusal may tell of a limit: its words, or its type and code alone where it blames the request itself. */
function tellingIn({ status, message, body = "" }: Refusal): string {
  const text = `${message} ${body}`
  const codes = Array.from(text.matchAll(CODES), ([, code]) => code).join(" ")
  const blames = status !== undefined && status >= 400 && status < 500
  const isWrong = blames ? !WORDED_STATUSES.includes(status) : WRONG_REQUEST.test(`${codes} ${message}`)
  return isWrong || SYSTEM_ERROR.test(message) ? codes : `${text.replace(QUOTED, "")} ${codes}`
}

/** Where the status is not told, or is one of a wrong request, the words or the code decide. */
const mayBeMoney = (status: number | undefined): boolean => status === undefined || (status >= 400 && status < 500)

/** The first that tells a time, of a refusal's header, its body, its rate limits, its words and the host's plan. */
function timeOf(refusal: Refusal, now: number): number | undefined {
  const { headers = {}, message } = refusal
  // The error of a stream that broke off is told as its message.
  const body = `${refusal.body ?? ""} ${message}`
  const at = refusal.at ?? refusedAt(refusal, now)
  const sources = [
    () => (RETRY_FIELDS.some((name) => isZero(headers[name])) ? now + SOONEST_MS : undefined),
    () => after(headers["retry-after-ms"], at, 1),
    () => after(headers["retry-after"], at, SECOND_MS) ?? dateOf(headers["retry-after"]),
    () => moment(fieldIn(body, "resets_at|reset_at")),
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
/** `retry-after: 0` means at once. */
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

/** A JSON body's own field, wherever it stands. */
const fieldIn = (body: string, names: string): string | undefined =>
  new RegExp(`"(?:${names})"\\s*:\\s*"?([^",}\\]]+)"?`, "i").exec(body)?.[1]?.trim()

/** A moment as seconds or milliseconds since the epoch, or as a date. */
function moment(value: string | undefined): number | undefined {
  if (value === undefined) return undefined
  if (!/^\d+(\.\d+)?$/.test(shortened(value))) return dateOf(value)
  const number = Number(value)
  return number < 1e11 ? number * SECOND_MS : number
}

const LIMIT_HEADER = /^(anthropic-ratelimit-(.+)-reset|x-ratelimit-reset-(.+))$/
/** What Anthropic says of a limit that lets requests through. */
const ALLOWED = /^\s*allowed/

/**
 * Of the limits with nothing left, the one that opens last. Where it is not told what is left, nothing is, unless the
 * limit is said to let requests through.
 */
function inLimits(headers: Readonly<Record<string, string>>, now: number): number | undefined {
  const times = Object.entries(headers).flatMap(([name, value]) => {
    const [match, , anthropic, other] = LIMIT_HEADER.exec(name) ?? []
    if (match === undefined) return []
    const left = headers[anthropic ? `anthropic-ratelimit-${anthropic}-remaining` : `x-ratelimit-remaining-${other}`]
    if (left !== undefined && Number(left) > 0) return []
    if (ALLOWED.test(headers[`anthropic-ratelimit-${anthropic}-status`] ?? "")) return []
    const time = span(value, now) ?? (isSpanInSeconds(value) ? after(value, now, SECOND_MS) : moment(value))
    return time === undefined ? [] : [time]
  })
  return times.length === 0 ? undefined : Math.max(...times)
}

/** A number of seconds: as a moment it would be one of the seventies. */
const isSpanInSeconds = (value: string): boolean => /^\s*\d{1,8}(\.\d+)?\s*$/.test(shortened(value))

const UNITS_MS = { w: 7 * DAY_MS, d: DAY_MS, h: HOUR_MS, m: MINUTE_MS, s: SECOND_MS, ms: 1 } as const
const UNIT =
  "(ms|msecs?|milliseconds?|w|weeks?|d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?)(?![a-z])[\\s,]*(?:and\\s+)?"
const PIECE = `(\\d+(?:\\.\\d+)?)\\s*${UNIT}`
const PIECES = new RegExp(`^(?:${PIECE})+`, "i")

/** A span of time with its units, as `6m0s`, `1.5s`, `34.07s`, `500ms` or `2 hours`. */
function span(value: string | undefined, now: number): number | undefined {
  const text = shortened(value ?? "").trim()
  return PIECES.exec(text)?.[0] === text ? spanBefore(text, now) : undefined
}

/** The span that a text begins with: what follows it is another word of the sentence. */
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
/** What follows on a time of day where it is that of a zone, as `UTC`, `PST` or `(America/New_York)`. */
const ZONE = /^\s*\(?(UTC|GMT|Z|[A-Z]{2,4}T|[A-Z]\w+\/\w+)\b/
/** A time of day that was so short ago has just come. */
const JUST_COME_MS = 15 * MINUTE_MS

/** "try again in 6m0s", "resets at 14:30". A time of day is this machine's where it names no zone. */
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
  // Of a provider whose clock, or whose words, are some minutes late it is not tomorrow's.
  return now - time.getTime() < JUST_COME_MS ? undefined : time.getTime() + DAY_MS
}

/** When a refusal came that the host tells of later: its own schedule counts from then. */
function refusedAt(refusal: Refusal, now: number): number {
  const { next, attempt = 1 } = refusal
  if (next === undefined || inHost(refusal, now) !== undefined) return now
  return Math.min(now, next - HOST_FIRST_MS * 2 ** (Math.max(1, attempt) - 1))
}

/** When the host means to ask again, where that is later than its own schedule: then it was told. */
function inHost({ next, attempt = 1 }: Refusal, now: number): number | undefined {
  if (next === undefined) return undefined
  const own = HOST_FIRST_MS * 2 ** (Math.max(1, attempt) - 1) * HOST_JITTER + HOST_SLACK_MS
  return next - now > own ? next : undefined
}
