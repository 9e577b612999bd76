import { removeThere, type There } from "./files.ts"
import type { Hosts, Machine } from "./hosts.ts"
import type { RemoteSession } from "./remote-session.ts"

/** Remove it in any state: it holds no work. */
const WHATEVER = ""

/** Removes the folder in which tries were checked again. A failure enters the cleanup queue. */
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
