import { messageOf } from "../../core/errors.ts"
import type { Schema, Task } from "../../core/task.ts"
import type { Checked } from "../../core/value.ts"
import type { Parts } from "../../runtime/parts.ts"
import type { Ledgers } from "../maps/ledger.ts"

/** Finds a valid value in a text. Its code is loaded only for tasks with a schema. */
export type Validate = (schema: Schema, text: string) => Promise<Checked>

/** Values in agents' answers: validation, and the files of valid ones. */
export class Values {
  readonly #host: Parts["host"]
  readonly #validate: Validate
  readonly #ledgers: () => Promise<Ledgers>

  constructor({ host }: Pick<Parts, "host">, validate: Validate, ledgers: () => Promise<Ledgers>) {
    this.#host = host
    this.#validate = validate
    this.#ledgers = ledgers
  }

  /** Value of a run's answer; undefined for a run without a schema. */
  async in({ id, part, run: { schema } }: Task, text: string): Promise<Checked | undefined> {
    if (!schema) return undefined
    const found = await this.#validate(schema, text)
    // A group of tries stores its winner's value only, and a map stores its items' values in rows.
    if (!found.valid || part) return found
    const file = await this.keep(id, text.slice(found.at, found.at + found.length))
    return { ...found, ...(file !== undefined && { file }) }
  }

  /** Path for a task's value. */
  async fileOf(taskID: string): Promise<string> {
    return (await this.#ledgers()).valueOf(taskID)
  }

  /** Path of the stored value; undefined where storing failed. */
  async keep(taskID: string, json: string): Promise<string | undefined> {
    try {
      return await (await this.#ledgers()).keep(taskID, json)
    } catch (error) {
      this.#host.log("warn", "a value could not be kept in a file", { task: taskID, error: messageOf(error) })
      return undefined
    }
  }
}
