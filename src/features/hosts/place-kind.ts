import type { Options } from "../../options/options.ts"
import type { Place, PlaceKind } from "../../runtime/places/place.ts"
import type { HostPlace } from "./host-place.ts"
import type { Hosts } from "./hosts.ts"

export type HostKind = Omit<PlaceKind, "open"> & { readonly open: (name: string) => Promise<HostPlace> }

/** The hosts of the options, as places. */
export const hostKind = (hosts: Hosts, worktrees: () => Promise<Place>, options: Options): HostKind => ({
  names: hosts.names,
  described: `A host (${hosts.names.join(", ")}): on that machine, in a worktree there.`,
  called: (name) => `${name}, in a git worktree there`,
  remains: (name) => `its folder on ${name}`,
  mayHaveLeft: () => false,
  outlives: true,
  isShared: true,
  guards: true,
  hears: (name) => hosts.machine(name).link.hears,
  rejoin: (name, taskID) => hosts.machine(name).link.use(taskID, true),
  most: (name) => hosts.machine(name).settings.maxTasks,
  mostAway: (name) => hosts.machine(name).settings.contactTimeout,
  async open(name) {
    const { HostPlace } = await import("./host-place.ts")
    return new HostPlace(hosts, hosts.machine(name), await worktrees(), options.worktree.setup)
  },
})
