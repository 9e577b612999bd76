import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Reporter, TestModule, Vitest } from "vitest/node"
import type { Stage } from "../../src/core/run/active-run.ts"
import { type Edge, edgeOf, TABLE, type Target } from "../../src/core/run/machine.ts"
import type { InputType } from "../../src/core/run/steps.ts"

export const EDGES: readonly Edge[] = (Object.keys(TABLE) as Stage[]).flatMap((from) =>
  (Object.entries(TABLE[from]) as [InputType, readonly Target[]][]).flatMap(([input, targets]) =>
    targets.map((to) => edgeOf(from, input, to)),
  ),
)

/** Fails a run of all unit tests in which an edge of the machine's table was taken by none. */
export class EdgesReporter implements Reporter {
  readonly #folder = mkdtempSync(join(tmpdir(), "superagents-edges-"))
  readonly #file = join(this.#folder, "taken")
  #vitest: Vitest | undefined

  onInit(vitest: Vitest): void {
    this.#vitest = vitest
    writeFileSync(this.#file, "")
    process.env.SUPERAGENTS_EDGES = this.#file
  }

  async onTestRunEnd(modules: readonly TestModule[]): Promise<void> {
    const taken = new Set(readFileSync(this.#file, "utf8").split("\n"))
    rmSync(this.#folder, { recursive: true, force: true })
    const unit = this.#vitest?.projects.find(({ name }) => name === "unit")
    const all = await unit?.globTestFiles()
    const isWhole = all && modules.filter(({ project }) => project.name === "unit").length === all.testFiles.length
    if (!isWhole || this.#vitest?.config.testNamePattern) return
    const missing = EDGES.filter((edge) => !taken.has(edge))
    if (missing.length === 0) return
    console.error(`Edges of the machine's table that no unit test has taken:\n${missing.join("\n")}`)
    process.exitCode = 1
  }
}
