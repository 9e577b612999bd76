import { removeThere, type There } from "./files.ts"
import type { Hosts, Machine } from "./hosts.ts"
import type { RemoteSession } from "./remote-session.ts"

/** What is there of such a folder is no work of anybody's. */
const WHATEVER = ""

/**
 * Removes the folder in which tries were only checked once more: nothing is there alone. One that cannot be removed now is
 * owed.
 */
export async function removeBare(
  hosts: Pick<Hosts, "rest" | "cleanup">,
  { link, inTurn }: Pick<Machine, "link" | "inTurn">,
  remote: RemoteSession,
  there: () => Promise<There>,
): Promise<void> {
  hosts.rest(remote)
  try {
    const found = await there()
    await inTurn(() => removeThere(found, remote.taskID))
    await hosts.cleanup.forgive(remote)
    link.release(remote.taskID)
  } catch {
    remote.home = WHATEVER
    await hosts.cleanup.owe(remote)
  }
}
