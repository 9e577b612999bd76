import { messageOf } from "../../core/errors.ts"
import type { Schema, Task } from "../../core/task.ts"
import type { Checked } from "../../core/value.ts"
import type { Parts } from "../../runtime/parts.ts"
import type { Ledgers } from "../maps/ledger.ts"

/** Looks for a valid value in a text. Nothing of it is loaded where no task has a schema. */
export type Validate = (schema: Schema, text: string) => Promise<Checked>

/** What agents' answers are worth: valid or not, and in which file a valid one lies. */
export class Values {
  readonly #host: Parts["host"]
  readonly #validate: Validate
  readonly #ledgers: () => Promise<Ledgers>

  constructor({ host }: Pick<Parts, "host">, validate: Validate, ledgers: () => Promise<Ledgers>) {
    this.#host = host
    this.#validate = validate
    this.#ledgers = ledgers
  }

  /** What there is of a value in a run's answer; undefined where it has no schema. */
  async in({ id, part, run: { schema } }: Task, text: string): Promise<Checked | undefined> {
    if (!schema) return undefined
    const found = await this.#validate(schema, text)
    // Of several tries the team keeps the winner's alone, and a map has the values of its items in its rows.
    if (!found.valid || part) return found
    const file = await this.keep(id, text.slice(found.at, found.at + found.length))
    return { ...found, ...(file !== undefined && { file }) }
  }

  /** The file that will hold a task's value. */
  async fileOf(taskID: string): Promise<string> {
    return (await this.#ledgers()).valueOf(taskID)
  }

  /** The file of a value; undefined where it could not be kept. */
  async keep(taskID: string, json: string): Promise<string | undefined> {
    try {
      return await (await this.#ledgers()).keep(taskID, json)
    } catch (error) {
      this.#host.log("warn", "a value could not be kept in a file", { task: taskID, error: messageOf(error) })
      return undefined
    }
  }
}
