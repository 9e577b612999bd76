import { setTimeout as sleep } from "node:timers/promises"
import pty from "@lydell/node-pty"
import type { Terminal as Emulator, IBufferCell } from "@xterm/headless"
import xterm from "@xterm/headless"
import { reap } from "./reap.ts"

const WAIT_MS = 25_000
/** A program draws in several writes: what is looked at is the screen after them. */
const SETTLE_MS = 15
/** A key that comes right after Escape would be Alt. */
const ESCAPE_MS = 150
const KEY_MS = 10

const KEYS: Readonly<Record<string, string>> = {
  Enter: "\r",
  Escape: "\u001B",
  Tab: "\t",
  Space: " ",
  Backspace: "\u007F",
  Up: "\u001B[A",
  Down: "\u001B[B",
  Right: "\u001B[C",
  Left: "\u001B[D",
  Home: "\u001B[H",
  End: "\u001B[F",
  PageUp: "\u001B[5~",
  PageDown: "\u001B[6~",
}

/** The bytes of a key: a name of `KEYS`, `C-x` for one with Control, or the character itself. */
export function bytesOf(key: string): string {
  const control = /^C-([a-z])$/.exec(key)?.[1]
  if (control) return String.fromCharCode(control.charCodeAt(0) & 0x1f)
  const bytes = KEYS[key] ?? ([...key].length === 1 ? key : undefined)
  if (bytes === undefined) throw new Error(`no such key: ${key}`)
  return bytes
}

export type Colours = { readonly foreground: string; readonly background: string }

export type TerminalOptions = {
  readonly command: string
  readonly args?: readonly string[]
  readonly cwd: string
  readonly env: NodeJS.ProcessEnv
  /** Columns and rows. Default: 200 by 50. */
  readonly size?: readonly [number, number]
  /** What the terminal says when a program asks for its colours, as `#rrggbb`. Default: it does not answer. */
  readonly colours?: Colours
}

export type Terminal = ReturnType<typeof openTerminal>

/** What a screen is to show: a text, a pattern, or a judgement of the text of all rows. */
export type Shown = string | RegExp | ((screen: string) => boolean)

const living = new Set<() => void>()
process.on("exit", () => {
  for (const kill of living) kill()
})

/** Runs a program in a terminal without a window: a pty, and an emulator whose cells are the screen. */
export function openTerminal({ command, args = [], cwd, env, size = [200, 50], colours }: TerminalOptions) {
  const [cols, rows] = size
  const emulator = new xterm.Terminal({ cols, rows, allowProposedApi: true })
  const child = pty.spawn(command, [...args], {
    cols,
    rows,
    cwd,
    name: "xterm-256color",
    // The pty would write `undefined` out.
    env: { ...(JSON.parse(JSON.stringify(env)) as Record<string, string>), COLORTERM: "truecolor" },
  })
  let exit: { readonly code: number } | undefined
  const kill = () => {
    if (!exit) child.kill("SIGKILL")
  }
  living.add(kill)
  const release = reap(child.pid)
  const gone = new Promise<void>((resolve) => {
    child.onExit(({ exitCode }) => {
      exit = { code: exitCode }
      living.delete(kill)
      release()
      resolve()
    })
  })
  const write = (bytes: string) => {
    if (!exit) child.write(bytes)
  }
  child.onData((data) => emulator.write(data))
  emulator.onData(write)
  if (colours) answerForColours(emulator, colours, write)
  const notifications = takeNotifications(emulator, write)

  /** What is on the screen, without trailing blanks. */
  const screen = () => {
    const { active } = emulator.buffer
    const lines = Array.from({ length: emulator.rows }, (_, row) => {
      const line = active.getLine(active.viewportY + row)
      // After a resize a line may still have more cells than the screen has columns.
      return line?.translateToString(true, 0, emulator.cols).trimEnd() ?? ""
    })
    return lines.join("\n").trimEnd()
  }

  /** Resolves with the screen that shows it. */
  const waitFor = (what: Shown, { timeout = WAIT_MS } = {}) =>
    new Promise<string>((resolve, reject) => {
      let settling: NodeJS.Timeout | undefined
      const look = () => {
        const text = screen()
        if (!shows(text, what)) return false
        end()
        resolve(text)
        return true
      }
      const listener = emulator.onWriteParsed(() => {
        clearTimeout(settling)
        settling = setTimeout(look, SETTLE_MS)
      })
      const limit = setTimeout(() => {
        if (look()) return
        fail(`not within ${timeout} ms`)
      }, timeout)
      const fail = (why: string) => {
        end()
        reject(new Error(`${why}: the terminal shows ${what}; it shows\n${screen()}\n`))
      }
      void gone.then(() => setTimeout(() => look() || fail(`the program ended with ${exit?.code}`), SETTLE_MS))
      const end = () => {
        clearTimeout(limit)
        clearTimeout(settling)
        listener.dispose()
      }
      look()
    })

  return {
    screen,
    waitFor,
    /** The titles and texts of desktop notifications that the program has asked for. */
    notifications: (): readonly string[] => notifications,
    /** Resolves when the program has ended. */
    gone,
    /** What the program has ended with, if it has. */
    exitCode: () => exit?.code,
    pid: child.pid,
    /** The colour and style of each cell, row by row. */
    cells: () => cellsOf(emulator),
    type: (text: string) => write(text),
    async keys(...keys: string[]) {
      for (const key of keys) {
        write(bytesOf(key))
        await sleep(key === "Escape" ? ESCAPE_MS : KEY_MS)
      }
    },
    resize(columns: number, lines: number) {
      emulator.resize(columns, lines)
      child.resize(columns, lines)
    },
    async stop() {
      kill()
      await gone
      emulator.dispose()
    },
  }
}

const shows = (text: string, what: Shown): boolean => {
  if (typeof what === "function") return what(text)
  return typeof what === "string" ? text.includes(what) : what.test(text)
}

/** Programs ask for foreground (10) and background (11) to choose between light and dark. */
/** Says that it shows desktop notifications (OSC 99), and keeps those that come. */
function takeNotifications(emulator: Emulator, write: (bytes: string) => void): readonly string[] {
  const notifications: string[] = []
  emulator.parser.registerOscHandler(99, (data) => {
    const [metadata = "", text = ""] = data.split(";")
    const isEncoded = metadata.split(":").includes("e=1")
    if (metadata.includes("p=?")) write(`\u001B]99;${metadata};p=title,body,?\u001B\\`)
    else notifications.push(isEncoded ? Buffer.from(text, "base64").toString() : text)
    return true
  })
  return notifications
}

function answerForColours(emulator: Emulator, { foreground, background }: Colours, write: (bytes: string) => void) {
  for (const [code, colour] of [
    [10, foreground],
    [11, background],
  ] as const) {
    const [red, green, blue] = [1, 3, 5].map((at) => colour.slice(at, at + 2).repeat(2))
    emulator.parser.registerOscHandler(code, (data) => {
      if (data === "?") write(`\u001B]${code};rgb:${red}/${green}/${blue}\u001B\\`)
      return true
    })
  }
}

/** A colour is `#rrggbb`, a number of the terminal's palette, or undefined for the terminal's own. */
export type Cell = {
  readonly text: string
  readonly width: number
  readonly foreground: string | number | undefined
  readonly background: string | number | undefined
  readonly bold: boolean
  readonly dim: boolean
  readonly italic: boolean
  readonly underline: boolean
}

function cellsOf(emulator: Emulator): readonly (readonly Cell[])[] {
  const { active } = emulator.buffer
  return Array.from({ length: emulator.rows }, (_, row) => {
    const line = active.getLine(active.viewportY + row)
    return Array.from({ length: emulator.cols }, (_, column) => line?.getCell(column)).flatMap((cell) =>
      cell ? toCell(cell) : [],
    )
  })
}

function toCell(cell: IBufferCell): Cell {
  const foreground = cell.isFgDefault() ? undefined : colourOf(cell.getFgColor(), cell.isFgRGB())
  const background = cell.isBgDefault() ? undefined : colourOf(cell.getBgColor(), cell.isBgRGB())
  const [front, back] = cell.isInverse() ? [background, foreground] : [foreground, background]
  return {
    text: cell.getChars(),
    width: cell.getWidth(),
    foreground: front,
    background: back,
    bold: cell.isBold() !== 0,
    dim: cell.isDim() !== 0,
    italic: cell.isItalic() !== 0,
    underline: cell.isUnderline() !== 0,
  }
}

const colourOf = (value: number, rgb: boolean): string | number =>
  rgb ? `#${value.toString(16).padStart(6, "0")}` : value
