import type { OpencodeConnection } from "./connect.ts"
import { examineHost } from "./routes.ts"
import { isFirstOf } from "./version.ts"

const WRONG_HOST = "superagents: another OpenCode is needed"
const UNTRIED_HOST = "superagents: a version that was not tried"

/** Whether the tools work with this OpenCode, and the warning for its user. */
export class Suitability {
  readonly #connection: OpencodeConnection
  #isTold = false
  /** Why no tool can work; undefined where they can, or where that is not known yet. */
  refusal: string | undefined

  constructor(connection: OpencodeConnection) {
    this.#connection = connection
  }

  async examine(): Promise<void> {
    const { host, transport, notices } = this.#connection
    const { refusal, note, version } = await examineHost(transport)
    if (refusal) host.log("error", refusal)
    this.refusal = refusal
    if (!note || !version || !(await isFirstOf(version))) return
    host.log("warn", note)
    notices.push({ title: UNTRIED_HOST, message: note })
  }

  /** A screen is available: shows pending warnings. */
  show(): void {
    const { host, notices } = this.#connection
    for (const notice of notices.splice(0)) host.toast({ ...notice, variant: "warning" })
    if (this.refusal === undefined || this.#isTold) return
    host.toast({ title: WRONG_HOST, message: this.refusal, variant: "error" })
    this.#isTold = true
  }
}
