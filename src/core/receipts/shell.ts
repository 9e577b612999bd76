/**
 * Parses a shell command as far as a receipt needs: programs and operators. Loops, conditions and functions give no
 * result: a full bash parser would slow OpenCode's start more than the rest of the plugin.
 */

export type PipeStage = {
  readonly words: readonly string[]
  /** File to which its output is redirected. */
  readonly into?: string
  /** Its input stands in the command itself. */
  readonly fed: boolean
}

/** Programs joined by pipes, and the operator after them; "" for none. */
export type Pipeline = { readonly stages: readonly PipeStage[]; readonly next: "" | ";" | "&&" | "||" | "&" }

/** Placeholder in a word for text that is known only when the command runs. */
export const UNKNOWN = "\uFFFC"

const KEYWORDS = new Set(
  "if then elif else fi for while until do done case esac select function ! [[ coproc".split(" "),
)

/** Longer commands are programs and are not parsed. */
const MOST_CHARS = 20_000

/** Pipelines in order; undefined where the command holds anything else. */
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
  readonly pipelines: { stages: PipeStage[]; next: Pipeline["next"] }[] = []
  #at = 0
  #stages: PipeStage[] = []
  #stage: Draft = { words: [], fed: false }
  /** Here-documents that begin after the current line. */
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
    // A group is parsed as if it stood alone. `name()` would be a function.
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

  /** Skips the here-documents of the line that has just ended. */
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
    // Empty line or end of a group: the operator belongs to the pipeline before it.
    else if (next !== "" && next !== ";") for (const last of this.pipelines.slice(-1)) last.next = next
    this.#stages = []
  }

  /** A word; undefined where its quotes do not close. */
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

  /** Value of `$` or a backtick: "0" for an exit code, since it is a number, else `UNKNOWN`. */
  #expansion(): string | undefined {
    if (this.#take(/\$(?:[?#!$]|\{(?:PIPESTATUS|pipestatus)\[[\d@*]+\]\}|\{?(?:rc|ec|ret|code|status|exit\w*)\b\}?)/iy))
      return "0"
    if (this.#take(/\$(?:\w+|[@*-])|\$\{[^{}]*\}|`(?:[^`\\]|\\[\s\S])*`/y)) return UNKNOWN
    if (this.#take(/\$\(/y)) return this.#skipGroup() ? UNKNOWN : undefined
    return this.#take(/\$(?!\{)/y)
  }

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
