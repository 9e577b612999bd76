import type { TaskRecord } from "../../core/ports.ts"
import { namesItsSession } from "./codec.ts"

/** A session's row and its verified record. */
export type Recorded<Row> = { readonly row: Row; readonly record: TaskRecord }

/**
 * Drops copied records. A first record names no session, so a copy of it in a sibling looks like the task: prefer the
 * record that names its session, then the session with the task's prompt, then the oldest. `recorded` is ordered oldest
 * first.
 */
export async function withoutCopies<Row extends { readonly metadata?: unknown }>(
  recorded: readonly Recorded<Row>[],
  holdsPrompt: (record: TaskRecord) => Promise<boolean>,
): Promise<readonly Recorded<Row>[]> {
  const byTask = new Map<string, Recorded<Row>[]>()
  for (const each of recorded) {
    const { parentID, id } = each.record.task
    const key = `${parentID} ${id}`
    byTask.set(key, [...(byTask.get(key) ?? []), each])
  }
  const rightful = new Set<Recorded<Row>>()
  for (const several of byTask.values()) rightful.add(await rightfulOf(several, holdsPrompt))
  return recorded.filter((each) => rightful.has(each))
}

async function rightfulOf<Row extends { readonly metadata?: unknown }>(
  several: readonly Recorded<Row>[],
  holdsPrompt: (record: TaskRecord) => Promise<boolean>,
): Promise<Recorded<Row>> {
  const [oldest] = several as [Recorded<Row>]
  if (several.length === 1) return oldest
  const named = several.find(({ row }) => namesItsSession(row.metadata))
  if (named) return named
  for (const each of several) if (await holdsPrompt(each.record)) return each
  return oldest
}
