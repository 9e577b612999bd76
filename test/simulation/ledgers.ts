import type { ItemRow } from "../../src/core/members.ts"
import { Ledgers } from "../../src/runtime/ledgers.ts"

/** The ledgers of maps without files: a write takes no time but that of a promise, so that a seed decides all. */
export class KeptLedgers extends Ledgers {
  override keep(taskID: string): Promise<string> {
    return Promise.resolve(this.valueOf(taskID))
  }

  readonly #rows = new Map<string, readonly ItemRow[]>()

  constructor() {
    super("/project")
  }

  override async write(file: string, rows: readonly ItemRow[]): Promise<void> {
    this.#rows.set(file, rows)
  }

  override async append(file: string, row: ItemRow): Promise<void> {
    this.#rows.set(file, [...(this.#rows.get(file) ?? []), row])
  }

  override async read(file: string): Promise<readonly ItemRow[]> {
    const last = new Map((this.#rows.get(file) ?? []).map((row) => [row.index, row]))
    return [...last.values()].sort((one, other) => one.index - other.index)
  }
}
