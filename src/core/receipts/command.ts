import type { RanCommand } from "../receipt.ts"
import { testsIn } from "./tests.ts"

/**
 * Parses a shell command as far as a receipt needs: programs and operators. Loops, conditions and functions give no
 * result: a full bash parser would slow OpenCode's start more than the rest of the plugin.
 */

export type PipeStage = {
  readonly words: readonly string[]
  /** File to which the program's output is redirected. */
  readonly into?: string
  /** The program's input is written in the command itself. */
  readonly fed: boolean
}

/** Programs joined by pipes, and the operator after them; "" for none. */
export type Pipeline = { readonly stages: readonly PipeStage[]; readonly next: "" | ";" | "&&" | "||" | "&" }

/** Placeholder in a word for text that is not known before the command runs. */
export const UNKNOWN = "\uFFFC"

const KEYWORDS = new Set(
  "if then elif else fi for while until do done case esac select function ! [[ coproc".split(" "),
)

/** Commands with more characters are whole programs and are not parsed. */
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
    // A group in parentheses is parsed as if it stood alone. After a word, `()` would define a function, which is not
    // parsed.
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
    // After an empty line or the end of a group, the operator belongs to the pipeline before it.
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

/** A command with those test results in its output that can be trusted. */
export function ranOf(command: string, exitCode: number | undefined, output: string): RanCommand {
  const { runs, shows, masked } = characterOf(command)
  const tests = runs && !shows ? testsIn(output) : undefined
  return {
    command,
    ...(exitCode !== undefined && { exitCode }),
    ...(tests && { tests }),
    ...(!runs && { shows: true }),
    ...(masked && { masked: true }),
  }
}

/** Effects of a command, or of a part of one. */
type Character = {
  /** The command can pass or fail, so a test report in its output may be its own. */
  readonly runs: boolean
  /** The command prints content of files, other hosts or itself, so a test report in its output proves nothing. */
  readonly shows: boolean
  /** The exit code does not cover the whole command. */
  readonly masked: boolean
}

const SILENT: Character = { runs: false, shows: false, masked: false }
const SHOWS: Character = { ...SILENT, shows: true }
const RUNS: Character = { ...SILENT, runs: true }
/** For commands that hold the code they run. Such code may print anything. */
const INLINE: Character = { ...RUNS, shows: true }
/** For commands that are not a plain list of programs: nothing is known of them. */
const OPAQUE: Character = { runs: true, shows: true, masked: true }

const words = (list: string): ReadonlySet<string> => new Set(list.split(/\s+/))

const SHOWING =
  words(`cat tac bat batcat nl echo printf tee grep egrep fgrep zgrep rg ag ack head tail less more sed awk
  gawk cut sort uniq diff comm strings jq yq xxd column fold tr curl wget gh glab journalctl dmesg history zcat find fd`)
const SHOWING_GIT = words("log show diff blame grep reflog status cat-file shortlog whatchanged notes")
/** Programs that print nothing like a test report. */
const SILENT_PROGRAMS =
  words(`cd pushd popd pwd ls tree mkdir rmdir rm cp mv ln touch chmod chown export unset set shopt
  source . alias true false : test [ sleep wait date which type whoami hostname uname wc stat file du df ps kill exit
  return trap ulimit local`)
/** Programs that, in a pipe, pass a test report on completely or not at all. */
const LETTING_THROUGH = words("cat head tail tee less more")
/** Programs that run the program named after their own arguments. */
const STARTING = words("sudo time command exec nohup nice ionice stdbuf env timeout xvfb-run unbuffer xargs")
const SHELLS = words("sh bash zsh dash ksh")
const INTERPRETERS = words("node nodejs bun deno tsx python python2 python3 perl ruby php")
const CONTAINERS = words("docker docker-compose podman kubectl")

function characterOf(command: string): Character {
  const pipelines = pipelinesOf(command)
  if (!pipelines) return OPAQUE
  const settings = pipelines.flatMap(({ stages }) => stages.filter(({ words: [name] }) => name === "set"))
  const stops = settings.some(({ words: [, ...flags] }) => flags.some((flag) => /^-\w*e/.test(flag)))
  const pipefail = settings.some(({ words: flags }) => flags.includes("pipefail"))
  // Each stage is read once: a shell within a shell would else be read twice as often at each level.
  const read = pipelines.map(({ stages }) => stages.map((stage) => ({ ...stage, character: characterOfStage(stage) })))
  const written = filesOf(read)
  const all = read.map((stages) => characterOfPipeline(stages, written, pipefail))
  // An earlier pipeline may have failed although the last pipeline passed.
  const last = pipelines.slice(0, -1).findLastIndex(({ next }) => next !== "&&" && !(stops && next === ";"))
  return {
    runs: all.some(({ runs }) => runs),
    shows: all.some(({ shows }) => shows),
    masked: all.some(({ runs, masked }, at) => runs && (masked || pipelines[at]?.next === "&" || at <= last)),
  }
}

type ReadStage = PipeStage & { readonly character: Character }

/** Files written only by programs that run something. */
function filesOf(pipelines: readonly (readonly ReadStage[])[]): ReadonlySet<string> {
  const files = new Map<string, boolean>()
  for (const stages of pipelines) {
    const runs = stages.some(({ character }) => character.runs)
    for (const {
      words: [name, ...rest],
      into,
    } of stages)
      for (const file of [...(into === undefined ? [] : [into]), ...(name === "tee" ? filesIn(rest) : [])])
        files.set(file, runs && files.get(file) !== false)
  }
  return new Set([...files].flatMap(([file, runs]) => (runs ? [file] : [])))
}

function characterOfPipeline(stages: readonly ReadStage[], written: ReadonlySet<string>, pipefail: boolean): Character {
  const all = stages.map((stage) => (showsOnly(stage, written) ? SILENT : stage.character))
  const at = all.findLastIndex(({ runs }) => runs)
  const hidden = stages.slice(Math.max(at, 0)).some(({ into }) => into !== undefined)
  const { shows = false, masked = false } = all[Math.max(at, 0)] ?? {}
  if (at < 0) return { ...SILENT, shows: !hidden && (all.at(-1)?.shows ?? false) }
  const changed = stages.slice(at + 1).some(({ words: [name = ""] }) => !LETTING_THROUGH.has(name))
  const drowned = !pipefail && all.slice(0, -1).some(({ runs }) => runs)
  return { runs: true, shows: !hidden && (shows || changed), masked: masked || drowned }
}

/** Whether a stage prints nothing but these files. */
function showsOnly({ words: given }: PipeStage, written: ReadonlySet<string>): boolean {
  const [path = "", ...rest] = started(given)
  const files = LETTING_THROUGH.has(nameIn(path)) ? filesIn(rest) : []
  return files.length > 0 && files.every((file) => written.has(file))
}

const nameIn = (path: string): string => path.slice(path.lastIndexOf("/") + 1)

function characterOfStage({ words: given, fed }: PipeStage): Character {
  const [path = "", ...rest] = started(given)
  const name = nameIn(path)
  if (name.includes(UNKNOWN)) return OPAQUE
  if (name === "" || SILENT_PROGRAMS.has(name)) return SILENT
  if (SHELLS.has(name)) return characterOfShell(rest, fed)
  if (INTERPRETERS.has(name)) return fed || isInline(name, rest) ? INLINE : RUNS
  if (name === "git") return SHOWING_GIT.has(subcommandOf(rest)) ? SHOWS : RUNS
  if (CONTAINERS.has(name)) return rest.includes("logs") ? SHOWS : RUNS
  if (name === "echo" || name === "printf") return isHarmless(rest) ? SILENT : SHOWS
  return SHOWING.has(name) ? SHOWS : RUNS
}

/** Programs and scripts that a command runs, without files that it only reads. Undefined where they are not known. */
export const runIn = (command: string): readonly string[] | undefined =>
  pipelinesOf(command)?.flatMap(({ stages }) => stages.flatMap(runInStage))

function runInStage(stage: PipeStage): readonly string[] {
  const given = started(stage.words)
  const [path = "", ...rest] = given
  const name = nameIn(path)
  if (name === "." || name === "source") return rest.slice(0, 1)
  const inline = SHELLS.has(name) ? rest.findIndex((word) => /^-\w*c$/.test(word)) : -1
  if (inline >= 0) return runIn(rest[inline + 1] ?? "") ?? rest
  if (SHELLS.has(name) || INTERPRETERS.has(name)) return [path, ...scriptsIn(name, rest)]
  return characterOfStage(stage).runs ? given : []
}

/** Interpreter options whose argument is a script that runs, too. */
const TAKES_FILE = /^(--import|--require|--loader|-r)$/

/** The interpreter's script; arguments after it belong to the script. */
function scriptsIn(name: string, rest: readonly string[]): readonly string[] {
  if (name === "bun" || name === "deno" || rest.some((word) => word === "--test" || word === "-m")) return rest
  const at = rest.findIndex((word, nth) => !word.startsWith("-") && !TAKES_FILE.test(rest[nth - 1] ?? ""))
  return at < 0 ? rest : rest.slice(0, at + 1)
}

/** Skips variable assignments and launchers such as `sudo` before a program. */
function started(given: readonly string[]): readonly string[] {
  let isStarted = false
  const at = given.findIndex((word) => {
    if (/^\w+\+?=/.test(word) || (isStarted && /^[-\d]/.test(word))) return false
    isStarted = STARTING.has(word)
    return !isStarted
  })
  return at < 0 ? [] : given.slice(at)
}

function characterOfShell(rest: readonly string[], fed: boolean): Character {
  const at = rest.findIndex((word) => /^-\w*c$/.test(word))
  if (at >= 0) return characterOf(rest[at + 1] ?? "")
  return fed || rest.length === 0 ? OPAQUE : RUNS
}

function isInline(name: string, rest: readonly string[]): boolean {
  for (const word of rest) {
    if (/^(-[ecp]|-[np]e|--eval|--print|-|eval)$/.test(word) || (name === "php" && word === "-r")) return true
    if (!word.startsWith("-") || word === "-m") return false
  }
  return false
}

/** Git's subcommand, after git's own options. */
const subcommandOf = (rest: readonly string[]): string =>
  rest.find((word, at) => !word.startsWith("-") && !/^-[cC]$/.test(rest[at - 1] ?? "")) ?? ""

/** Whether the command's output is known and never a test report. */
function isHarmless(rest: readonly string[]): boolean {
  const text = rest.join(" ").replaceAll("\\n", "\n").replaceAll("\\t", "\t")
  return !text.includes(UNKNOWN) && testsIn(text.replace(/^-[neE]+ /, "")) === undefined
}

const filesIn = (rest: readonly string[]): readonly string[] =>
  rest.filter((word, at) => !word.startsWith("-") && !/^-[nc]$/.test(rest[at - 1] ?? ""))
