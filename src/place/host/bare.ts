import { removeThere, type There } from "./files.ts"
import type { Hosts, Machine } from "./hosts.ts"
import type { Stub } from "./stub.ts"

/** What is there of such a folder is no work of anybody's. */
const WHATEVER = ""

/**
 * Removes the folder in which tries were only checked once more: nothing is there alone. One that cannot be removed now is
 * owed.
 */
export async function removeBare(
  hosts: Pick<Hosts, "rest" | "owing">,
  { link, inTurn }: Pick<Machine, "link" | "inTurn">,
  stub: Stub,
  there: () => Promise<There>,
): Promise<void> {
  hosts.rest(stub)
  try {
    const found = await there()
    await inTurn(() => removeThere(found, stub.taskID))
    await hosts.owing.forgive(stub)
    link.release(stub.taskID)
  } catch {
    stub.home = WHATEVER
    await hosts.owing.owe(stub)
  }
}
