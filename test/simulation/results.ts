import { ResultFolder } from "../../src/runtime/answers.ts"
import { SIGNER } from "../support/records.ts"

/** Values and rows without files: a write takes no time but that of a promise, so that a seed decides all. */
export class KeptResults extends ResultFolder {
  readonly #files = new Map<string, string>()

  constructor() {
    super(() => "/project", SIGNER)
  }

  override async write(file: string, text: string): Promise<void> {
    this.#files.set(file, text)
  }

  override async append(file: string, lines: string): Promise<void> {
    this.#files.set(file, `${this.#files.get(file) ?? ""}\n${lines}`)
  }

  override async read(file: string): Promise<string> {
    return this.#files.get(file) ?? ""
  }
}
