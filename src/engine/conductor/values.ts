import { messageOf } from "../../core/errors.ts"
import type { Schema, Task } from "../../core/task.ts"
import { type Checked, isLong } from "../../core/value.ts"
import type { Parts } from "../parts.ts"

/** Looks for a valid value in a text. Nothing of it is loaded where no task has a schema. */
export type Validate = (schema: Schema, text: string) => Promise<Checked>

/** Keeps a value in a file of this task's name; that file. */
export type Keep = (taskID: string, json: string) => Promise<string>

/** What agents' answers are worth: valid or not, and where the long ones lie. */
export class Values {
  readonly #host: Parts["host"]
  readonly #validate: Validate
  readonly #keep: Keep

  constructor({ host }: Pick<Parts, "host">, validate: Validate, keep: Keep) {
    this.#host = host
    this.#validate = validate
    this.#keep = keep
  }

  /** What there is of a value in a run's answer; undefined where it has no schema. */
  async in({ id, part, run: { schema } }: Task, text: string): Promise<Checked | undefined> {
    if (!schema) return undefined
    const found = await this.#validate(schema, text)
    // Of several tries the winner's alone is kept, and that by their team: nothing else of them lies in the project.
    if (!found.valid || part?.kind === "tries") return found
    const file = await this.keep(id, text.slice(found.at, found.at + found.length))
    return { ...found, ...(file !== undefined && { file }) }
  }

  /** The file of a long value; undefined for a short one, and where it could not be kept. */
  async keep(taskID: string, json: string): Promise<string | undefined> {
    if (!isLong(json)) return undefined
    try {
      return await this.#keep(taskID, json)
    } catch (error) {
      this.#host.log("warn", "a long value could not be kept in a file", { task: taskID, error: messageOf(error) })
      return undefined
    }
  }
}
