/**
 * Text for readers, and text that a child or its provider made: names, paths, reasons, questions, descriptions. Such
 * text is data. It stands on one line, opens and closes no tag, and hides nothing.
 */

/** Longest piece of foreign text in a line of ours, in UTF-16 units. */
export const MOST_LINE_CHARS = 200

/** Marks, directions and invisible letters that show nothing and could say something to a model. */
const INVISIBLE = /[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const GAP = /[\s\u0000-\u001f\u007f-\u009f]+/g
/** `<` where a tag could begin. */
const TAG_START = /<(?=[\p{L}/!?])/gu

/**
 * Foreign text as one line of at most `most` characters: no line breaks, no control or invisible characters, and `‹`
 * where a tag could begin. What went through once comes out unchanged the second time.
 */
export function oneLine(text: string, most = MOST_LINE_CHARS): string {
  return cut(text.replace(INVISIBLE, "").replace(GAP, " ").trim(), most).replace(TAG_START, "‹")
}

/** The text, or its beginning and an ellipsis, together at most `most` characters. */
export const cut = (text: string, most: number): string =>
  text.length <= most ? text : `${head(text, most - 1).trimEnd()}…`

/** The first `most` UTF-16 units of a text, one less where a pair would be split. */
export function head(text: string, most: number): string {
  const last = text.charCodeAt(most - 1)
  const splitsPair = text.length > most && last >= 0xd800 && last <= 0xdbff
  return text.slice(0, splitsPair ? most - 1 : most)
}

/** The last `most` UTF-16 units of a text, without half of a pair: a provider may refuse the whole request for one. */
export const tail = (text: string, most: number): string => text.slice(-most).replace(/^[\udc00-\udfff]/, "")

/** `1,234,567`. */
export const grouped = (number: number): string => decimal(number, 0, 3)

/** `toLocaleString` makes one of these for each call, which takes the host's engine half a millisecond. */
const formats = new Map<string, Intl.NumberFormat>()

/** `1,234.50`: with so many digits behind the point at least, and at most. */
export function decimal(number: number, minimumFractionDigits: number, maximumFractionDigits: number): string {
  const key = `${minimumFractionDigits} ${maximumFractionDigits}`
  const format = formats.get(key) ?? new Intl.NumberFormat("en-US", { minimumFractionDigits, maximumFractionDigits })
  formats.set(key, format)
  return format.format(number)
}

/** `950`, `12.3K`, `1.2M`: for where there is little room. */
export function short(number: number): string {
  if (number < 1000) return String(number)
  return number < 999_950 ? `${(number / 1000).toFixed(1)}K` : `${(number / 1_000_000).toFixed(1)}M`
}

/** `1 task`, `1,200 tasks`; `many` where the plural is not made with an s. */
export const count = (number: number, one: string, many = `${one}s`): string =>
  `${grouped(number)} ${number === 1 ? one : many}`

/** With a capital at its beginning. */
export const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1)

/** A longer foreign text between a pair of tags that it cannot close or open itself. `id`: one of ours. */
export const between = (tag: string, id: string, text: string): string => enclosed(tag, ` id="${id}"`, text)

/** The same between tags without an id, where what stands before them says whose it is. */
export const inTags = (tag: string, text: string): string => enclosed(tag, "", text)

const enclosed = (tag: string, attributes: string, text: string): string =>
  `<${tag}${attributes}>\n${within(tag, marked(text))}\n</${tag}>`

/** A foreign text that can stand between tags of this name: it can neither close nor open them. */
export const within = (tag: string, text: string): string => text.replaceAll(tagStart(tag), "&lt;")

/** Stands before what an agent wrote in the voice of the plugin or of the host. */
const OWN_TEXT = "[the agent's own text] "

const marked = (text: string): string =>
  text.replaceAll(FORGED_LINE, `$1${OWN_TEXT}`).replaceAll(FORGED_TAG, `${OWN_TEXT}&lt;`)

/** Shows nothing, or only on the letter before it. */
const UNSEEN = "\\p{DI}\\p{Cf}\\p{Mn}"

/** A pattern for a word as a model may read it: full-width letters are letters, and what shows nothing is not there. */
const spelled = (word: string): string =>
  Array.from(word, (letter) => `[${letter === "-" ? "\\-" : letter}${wide(letter)}]`).join(`[${UNSEEN}\\p{Cc}]*`)

const wide = (letter: string): string => String.fromCharCode(letter.charCodeAt(0) + 0xfee0)

/** Where a tag of this name opens or closes. */
const tagStart = (tag: string): RegExp =>
  new RegExp(`[<＜﹤](?=[\\s${UNSEEN}\\p{Cc}]*(?:[/／][\\s${UNSEEN}\\p{Cc}]*)?${spelled(tag)})`, "giu")

const FORGED_TAG = tagStart("system-reminder")
const FORGED_LINE = new RegExp(
  `((?:^|[\\v\\f\\x85])[\\p{P}\\p{S}\\t\\p{Zs}${UNSEEN}]*)(?=${spelled("Automatic")}[\\s${UNSEEN}]+${spelled("message")})`,
  "gimu",
)
