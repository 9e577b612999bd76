import { createHash } from "node:crypto"
import { mkdir, open, readFile, stat } from "node:fs/promises"
import { join, resolve } from "node:path"
import { draft } from "../../../lib/atomic-file.ts"
import { ifMissing } from "../../../lib/lock.ts"
import type { Signer } from "../../../runtime/record/signature.ts"
import type { BoardState } from "../state.ts"
import { parseJson } from "./format.ts"

/** Digest of a missing `tasks.json`. */
export const NO_TEXT = ""

export const digestOf = (text: string): string => createHash("sha256").update(text).digest("base64url")

/** This installation's copy of a board. */
export type Archive = {
  readonly state: BoardState
  /** Unknown fields of `tasks.json`. */
  readonly others: Readonly<Record<string, unknown>>
  /** Digests of `tasks.json` as written with this, and of the version before, in case that write was interrupted. */
  readonly text: string
  readonly before: string
}

const FILE = "board.json"
const VERSION = 1

/**
 * Trusted copy of the board in OpenCode's state folder, signed with the installation's key. A copy without a valid
 * signature, or for another folder, is ignored.
 */
export class Keep {
  readonly folder: string
  readonly file: string
  readonly #board: string
  readonly #signer: Signer
  readonly #warn: (message: string) => void

  constructor(state: string, board: string, signer: Signer, warn: (message: string) => void) {
    this.#board = resolve(board)
    this.folder = join(state, `board-${createHash("sha256").update(this.#board).digest("hex").slice(0, 16)}`)
    this.file = join(this.folder, FILE)
    this.#signer = signer
    this.#warn = warn
  }

  signature(): Promise<string> {
    return signatureOf(this.file)
  }

  async read(): Promise<Archive | undefined> {
    const text = await readFile(this.file, "utf8").catch(ifMissing(undefined))
    if (text === undefined) return undefined
    const end = text.indexOf("\n")
    const body = text.slice(end + 1)
    const known = this.#signer.isSigned(body, text.slice(0, end)) ? parseJson(body) : undefined
    const { version, board, ...kept } = (known ?? {}) as { version?: number; board?: string } & Archive
    if (version === VERSION && board === this.#board) return kept
    this.#warn(`${this.file} was not written by this installation: every task waits for a person.`)
    return undefined
  }

  /** Writes its replacement to a temporary file for `renameSync`. */
  async aside(kept: Archive): Promise<string> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 })
    const body = JSON.stringify({ version: VERSION, board: this.#board, ...kept })
    return draft(this.file, `${this.#signer.sign(body)}\n${body}`, { flush: true })
  }
}

export const MISSING = "missing"

/** Changes whenever the file does. */
export async function signatureOf(path: string): Promise<string> {
  const found = await stat(path, { bigint: true }).catch(ifMissing(undefined))
  return found ? `${found.ino}:${found.size}:${found.mtimeNs}` : MISSING
}

/** So that a rename outlives a power cut; not all systems can. */
export async function flushFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r").catch(() => undefined)
  await handle?.sync().catch(() => {})
  await handle?.close()
}
