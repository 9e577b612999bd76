import type { TaskRecord } from "../../core/ports.ts"
import { namesItsSession } from "./codec.ts"

/** A session's row with the record that is believed of it. */
export type Recorded<Row> = { readonly row: Row; readonly record: TaskRecord }

/**
 * The records without those that were copied. A task's first record names no session, since it is written with the
 * session itself: whoever puts it into another child of the same parent makes the task look doubled. Of several, the
 * task's is the one that names its session, else the one whose session holds the task's prompt (the host stores a
 * message once), else the one in the oldest session. `recorded` has the oldest session first.
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
