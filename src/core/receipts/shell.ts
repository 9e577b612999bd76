/**
 * A command line of the shell, as far as a receipt has to know it: which programs it starts, and what joins them. Where
 * it holds more than that (loops, conditions, functions), nothing is said of it: a parser of all that bash knows would
 * cost more at the host's start than the rest of the plugin.
 */

/** A program with its arguments, quotes gone. */
export type Stage = {
  readonly words: readonly string[]
  /** The file that its output goes to, in place of the reader. */
  readonly into?: string
  /** It reads what stands in the command itself. */
  readonly fed: boolean
}

/** Programs of which each reads what the one before writes, and what joins them with the next ones; "" for nothing. */
export type Pipeline = { readonly stages: readonly Stage[]; readonly next: "" | ";" | "&&" | "||" | "&" }

/** Stands in a word for text that is known when the command runs. */
export const UNKNOWN = "\uFFFC"

const KEYWORDS = new Set(
  "if then elif else fi for while until do done case esac select function ! [[ coproc".split(" "),
)

/** What is longer is said nothing of: it is a program rather than a command. */
const MOST_CHARS = 20_000

/** The command's pipelines in their order; undefined where it holds more than those. */
export function pipelinesOf(command: string): readonly Pipeline[] | undefined {
  if (command.length > MOST_CHARS) return undefined
  const reader = new Reader(command)
  return reader.read() ? reader.pipelines : undefined
}

type Draft = { words: string[]; into?: string; fed: boolean }

const OPERATOR = /&&|\|\||\|&|;;|[;&|\n()]/y
const REDIRECTION = /(\d?)(?:(<<<|<<-?|<&|<>|<)|(>&|>>|>\||>))|(&>>?)/y
const SPACE = /(?:[ \t]|\\\n)+/y
const COMMENT = /#[^\n]*/y

class Reader {
  readonly #text: string
  readonly pipelines: { stages: Stage[]; next: Pipeline["next"] }[] = []
  #at = 0
  #stages: Stage[] = []
  #stage: Draft = { words: [], fed: false }
  /** The ends of texts that stand below the line. */
  #below: { end: string; indented: boolean }[] = []

  constructor(text: string) {
    this.#text = text
  }

  read(): boolean {
    while (this.#at < this.#text.length) if (!this.#step()) return false
    this.#join("")
    return this.#below.length === 0
  }

  #step(): boolean {
    if (this.#take(SPACE) !== undefined || this.#take(COMMENT) !== undefined) return true
    if (/[<>]\(/y.test(this.#text.slice(this.#at, this.#at + 2))) return false
    const redirection = this.#match(REDIRECTION)
    if (redirection) return this.#redirect(redirection)
    const operator = this.#take(OPERATOR)
    if (operator !== undefined) return this.#operate(operator)
    const word = this.#word()
    if (word === undefined || (this.#stage.words.length === 0 && KEYWORDS.has(word))) return false
    if (this.#stage.words.length > 0 || !/^[{}]$/.test(word)) this.#stage.words.push(word)
    return true
  }

  #operate(operator: string): boolean {
    if (operator === ";;") return false
    // A group: what is in it is read as if it stood alone. `name()` would be a function.
    if (operator === "(" || operator === ")") return this.#stage.words.length === 0 || operator === ")"
    if (operator === "|" || operator === "|&") this.#push()
    else this.#join(operator === "\n" ? ";" : (operator as Pipeline["next"]))
    return operator !== "\n" || this.#skipBelow()
  }

  #redirect([, number = "", input, output, both]: RegExpExecArray): boolean {
    this.#take(SPACE)
    const start = this.#at
    const target = this.#word()
    if (target === undefined) return false
    if (input?.startsWith("<<") && input !== "<<<") {
      this.#below.push({ end: target || this.#text.slice(start, this.#at), indented: input === "<<-" })
      this.#stage.fed = true
    }
    const isFile = !/^(\d+|-|\/dev\/(stdout|stderr|tty))$/.test(target)
    if (isFile && (both !== undefined || (output !== undefined && (number === "" || number === "1"))))
      this.#stage.into = target
    return true
  }

  /** Goes past the texts that stand below the line that has just ended. */
  #skipBelow(): boolean {
    for (const { end, indented } of this.#below) {
      let line: string | undefined
      while (line !== end) {
        if (this.#at >= this.#text.length) return false
        line = (this.#take(/[^\n]*\n?/y) ?? "").replace(/\n$/, "")
        if (indented) line = line.replace(/^\t+/, "")
      }
    }
    this.#below = []
    return true
  }

  #push(): void {
    const { words, into, fed } = this.#stage
    if (words.length > 0) this.#stages.push({ words, fed, ...(into !== undefined && { into }) })
    this.#stage = { words: [], fed: false }
  }

  #join(next: Pipeline["next"]): void {
    this.#push()
    if (this.#stages.length > 0) this.pipelines.push({ stages: this.#stages, next })
    // An empty line, or the end of a group: what joins it counts for what stood before.
    else if (next !== "" && next !== ";") for (const last of this.pipelines.slice(-1)) last.next = next
    this.#stages = []
  }

  /** A word; undefined where it does not end. */
  #word(): string | undefined {
    let word = ""
    while (this.#at < this.#text.length) {
      const plain = this.#take(/[^\s\\'"$`;&|<>()]+/y)
      if (plain !== undefined) {
        word += plain
        continue
      }
      const char = this.#text[this.#at] ?? ""
      if (/[\s;&|<>()]/.test(char)) break
      const piece = this.#piece(char)
      if (piece === undefined) return undefined
      word += piece
    }
    return word
  }

  #piece(char: string): string | undefined {
    if (char === "\\")
      return this.#take(/\\[\s\S]?/y)
        ?.slice(1)
        .replace("\n", "")
    if (char === "'") return this.#take(/'[^']*'/y)?.slice(1, -1)
    if (char === '"') return this.#quoted()
    return this.#expansion()
  }

  #quoted(): string | undefined {
    this.#at++
    let text = ""
    while (this.#text[this.#at] !== '"') {
      const plain = this.#take(/[^"\\$`]+/y) ?? this.#take(/\\[\s\S]/y)?.replace(/^\\(["\\$`\n])/, "$1")
      const piece = plain ?? (this.#at < this.#text.length ? this.#expansion() : undefined)
      if (piece === undefined) return undefined
      text += piece
    }
    this.#at++
    return text
  }

  /** What a `$` or a backtick stands for: a number where it is how a command ended, or is named so. */
  #expansion(): string | undefined {
    if (this.#take(/\$(?:[?#!$]|\{(?:PIPESTATUS|pipestatus)\[[\d@*]+\]\}|\{?(?:rc|ec|ret|code|status|exit\w*)\b\}?)/iy))
      return "0"
    if (this.#take(/\$(?:\w+|[@*-])|\$\{[^{}]*\}|`(?:[^`\\]|\\[\s\S])*`/y)) return UNKNOWN
    if (this.#take(/\$\(/y)) return this.#skipGroup() ? UNKNOWN : undefined
    return this.#take(/\$(?!\{)/y)
  }

  /** Goes past what stands in parentheses. */
  #skipGroup(): boolean {
    for (let depth = 1; depth > 0; ) {
      const piece = this.#take(/[^()'"\\`]+|\\[\s\S]|'[^']*'|"(?:[^"\\]|\\[\s\S])*"|`[^`]*`|[()]/y)
      if (piece === undefined) return false
      depth += piece === "(" ? 1 : piece === ")" ? -1 : 0
    }
    return true
  }

  #match(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at
    const match = pattern.exec(this.#text)
    if (match) this.#at = pattern.lastIndex
    return match ?? undefined
  }

  #take(pattern: RegExp): string | undefined {
    return this.#match(pattern)?.[0]
  }
}
