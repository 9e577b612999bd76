import type { OpencodeLayer, Setup } from "../../app.ts"
import type { Options } from "../../options/options.ts"
import { kindOf, type PlaceKind } from "../../runtime/places/place.ts"
import type { Worktrees } from "../worktrees/worktrees.ts"
import type { HostPlace } from "./host-place.ts"
import { Hosts } from "./hosts.ts"
import { override, RemoteApi } from "./remote-host.ts"

export type HostKind = Omit<PlaceKind, "open"> & { readonly open: (name: string) => Promise<HostPlace> }

/** The hosts of the options, as places. */
export const hostKind = (hosts: Hosts, worktrees: () => Promise<Worktrees>, options: Options): HostKind => ({
  names: hosts.names,
  described: `A host (${hosts.names.join(", ")}): on that machine, in a worktree there.`,
  called: (name) => `${name}, in a git worktree there`,
  remains: (name) => `its folder on ${name}`,
  mayHaveLeft: () => false,
  outlives: true,
  isShared: true,
  guards: true,
  hasEvents: (name) => hosts.machine(name).link.hears,
  rejoin: (name, taskID) => hosts.rejoin(name, taskID),
  most: (name) => hosts.machine(name).settings.maxTasks,
  mostAway: (name) => hosts.machine(name).settings.contactTimeout,
  async open(name) {
    const { HostPlace } = await import("./host-place.ts")
    return new HostPlace(hosts, hosts.machine(name), await worktrees(), options.worktree.setup)
  },
})

/**
 * Opens remote hosts as places, with wrappers of `OpencodeApi` and `UserActions` for their tasks. This module is loaded
 * only with the option `hosts`.
 */
export function openHosts({
  connection,
  options,
  clock,
  kinds,
}: Pick<Setup, "connection" | "options" | "clock" | "kinds">): OpencodeLayer {
  const { opencode, userActions } = connection
  const hosts = new Hosts({ connection, options, clock })
  const kind = hostKind(hosts, () => kindOf(kinds, "worktree").open("worktree") as Promise<Worktrees>, options)
  hosts.performCleanup = async (remote) => (await kind.open(remote.host)).cleanUp(remote)
  return {
    kind,
    opencode: RemoteApi.over(opencode, hosts),
    userActions: override(userActions, {
      question: (ask) =>
        hosts.askHost(ask, (server, remoteAsk) => server.question(remoteAsk)) ?? userActions.question(ask),
      answer: (ask, reply) =>
        hosts.askHost(ask, (server, remoteAsk) => server.answer(remoteAsk, reply)) ?? userActions.answer(ask, reply),
    }),
    start(manager) {
      hosts.listen(
        (taskID, news) => manager.placeTold(taskID, news),
        (name) => void manager.parts.archive.settleOwed(name),
      )
      clock.after(0, () => void hosts.cleanup.takeUp())
    },
    close: () => hosts.close(),
  }
}
