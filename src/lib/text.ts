/**
 * Prepares texts for readers. Texts of children and providers are untrusted: these functions keep them on one line, and
 * make sure that they neither close a tag nor hide characters.
 */

/** Longest part of a line that may be text of a child or provider, in UTF-16 units. */
export const MOST_LINE_CHARS = 200

/** Invisible characters and direction marks, which could hide instructions to a model. */
const INVISIBLE = /[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const GAP = /[\s\u0000-\u001f\u007f-\u009f]+/g
/** `<` where a tag could begin. */
const TAG_START = /<(?=[\p{L}/!?])/gu

/**
 * Makes untrusted text a single line of at most `most` characters: without line breaks, control and invisible
 * characters, and with `‹` where a tag could begin. Applied twice, it changes nothing more.
 */
export function oneLine(text: string, most = MOST_LINE_CHARS): string {
  return cut(text.replace(INVISIBLE, "").replace(GAP, " ").trim(), most).replace(TAG_START, "‹")
}

/** Cuts a text to `most` characters, including the ellipsis. */
export const cut = (text: string, most: number): string =>
  text.length <= most ? text : `${head(text, most - 1).trimEnd()}…`

/** First `most` UTF-16 units of a text. The last unit is left out where it would be half of a surrogate pair. */
export function head(text: string, most: number): string {
  const last = text.charCodeAt(most - 1)
  const splitsPair = text.length > most && last >= 0xd800 && last <= 0xdbff
  return text.slice(0, splitsPair ? most - 1 : most)
}

/**
 * Last `most` UTF-16 units of a text, without half a surrogate pair: a provider may refuse a whole request because of
 * one.
 */
export const tail = (text: string, most: number): string => text.slice(-most).replace(/^[\udc00-\udfff]/, "")

/** Example: `1,234,567`. */
export const formatInteger = (number: number): string => decimal(number, 0, 3)

/**
 * Formatters are kept, because `toLocaleString` would create a formatter for each call, which takes half a millisecond.
 */
const formats = new Map<string, Intl.NumberFormat>()

/** Example: `1,234.50`. Takes the minimum and maximum number of decimals. */
export function decimal(number: number, minimumFractionDigits: number, maximumFractionDigits: number): string {
  const key = `${minimumFractionDigits} ${maximumFractionDigits}`
  const format = formats.get(key) ?? new Intl.NumberFormat("en-US", { minimumFractionDigits, maximumFractionDigits })
  formats.set(key, format)
  return format.format(number)
}

/** Examples: `950`, `12.3K`, `1.2M`. */
export function short(number: number): string {
  if (number < 1000) return String(number)
  return number < 999_950 ? `${(number / 1000).toFixed(1)}K` : `${(number / 1_000_000).toFixed(1)}M`
}

/** Examples: `1 task`, `1,200 tasks`; `many` for irregular plurals. */
export const count = (number: number, one: string, many = `${one}s`): string =>
  `${formatInteger(number)} ${number === 1 ? one : many}`

export const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1)

/** Puts untrusted text between tags that the text cannot close or open again. `id`: an id of this plugin. */
export const inTagsWithID = (tag: string, id: string, text: string): string => enclosed(tag, ` id="${id}"`, text)

/** Puts untrusted text between tags without an id, for a text whose source is named before it. */
export const inTags = (tag: string, text: string): string => enclosed(tag, "", text)

const enclosed = (tag: string, attributes: string, text: string): string =>
  `<${tag}${attributes}>\n${between(tag, text)}\n</${tag}>`

/** Untrusted text as it stands between such tags, with marks before what imitates the plugin or OpenCode. */
export const between = (tag: string, text: string): string => escapeForTag(tag, marked(text))

/** Makes untrusted text safe to stand between tags of this name. */
export const escapeForTag = (tag: string, text: string): string => text.replaceAll(tagStart(tag), "&lt;")

/** Mark put before text of an agent that imitates the plugin or OpenCode. */
const OWN_TEXT = "[the agent's own text] "

const marked = (text: string): string =>
  text.replaceAll(FORGED_LINE, `$1${OWN_TEXT}`).replaceAll(FORGED_TAG, `${OWN_TEXT}&lt;`)

/**
 * Characters that are invisible or combine with the letter before. The patterns repeat such sets by `*?`: for `*`, the
 * engine of OpenCode takes quadratic time, as the characters may have one or two code units.
 */
const UNSEEN = "\\p{DI}\\p{Cf}\\p{Mn}"

/**
 * Pattern for all spellings that a model may read as this word: also with full-width letters, other hyphens and low
 * lines, and invisible characters.
 */
const spelled = (word: string): string =>
  Array.from(word, (letter) => `[${LOOKALIKES[letter] ?? letter}${wide(letter)}]`).join(
    `[${UNSEEN}\\p{Cc}\\p{Zl}\\p{Zp}]*?`,
  )

/** Characters that look like a hyphen or a low line. */
const LOOKALIKES: Readonly<Record<string, string>> = { "-": "\\p{Pd}", _: "\\p{Pc}" }

const wide = (letter: string): string => String.fromCharCode(letter.charCodeAt(0) + 0xfee0)

const SLASHES = "[/／\\u2044\\u2215]"

/** Start of an opening or closing tag. Each pattern is made once, because that takes 6 ms. */
const tagStart = (tag: string): RegExp => {
  const space = `[\\s${UNSEEN}\\p{Cc}]*?`
  const pattern = tagStarts.get(tag) ?? new RegExp(`[<＜﹤](?=${space}(?:${SLASHES}${space})?${spelled(tag)})`, "giu")
  tagStarts.set(tag, pattern)
  return pattern
}

const tagStarts = new Map<string, RegExp>()

const FORGED_TAG = tagStart("system-reminder")
const FORGED_LINE = new RegExp(
  `((?:^|[\\v\\f\\x85])[\\p{P}\\p{S}\\t\\p{Zs}${UNSEEN}]*?)(?=${spelled("Automatic")}[\\s${UNSEEN}]+?${spelled("message")})`,
  "gimu",
)
