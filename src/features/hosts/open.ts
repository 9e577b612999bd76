import type { Clock, Host } from "../../core/ports.ts"
import type { Options } from "../../options/options.ts"
import type { Connection } from "../../runtime/connection.ts"
import type { Place, PlaceKind } from "../../runtime/places/place.ts"
import { DEBTS } from "../../runtime/places/root.ts"
import type { UserActions } from "../../runtime/user-actions.ts"
import { cleanupQueueIn } from "./cleanup.ts"
import { Hosts } from "./hosts.ts"
import { hostKind } from "./place-kind.ts"
import type { OpenRemote } from "./remote.ts"
import { override, RemoteHost } from "./remote-host.ts"

export type HostsRequest = {
  readonly options: Options
  readonly host: Host
  readonly userActions: UserActions
  readonly sign: Connection["sign"]
  readonly openRemote: OpenRemote
  readonly clock: Clock
  readonly instance: string
  readonly machine: string
  /** Folder that this instance serves. */
  readonly folder: string
  readonly worktrees: () => Promise<Place>
}

/** Remote hosts as places, with wrappers of `Host` and `UserActions` for their tasks. */
export type OpenHosts = {
  readonly hosts: Hosts
  readonly kind: PlaceKind
  readonly host: Host
  readonly userActions: UserActions
}

export function openHosts({ options, host, userActions, worktrees, folder, ...ports }: HostsRequest): OpenHosts {
  const hosts: Hosts = new Hosts({
    ...ports,
    cleanupQueue: cleanupQueueIn(DEBTS, folder),
    settings: options.hosts ?? {},
    log: (text, fields) => host.log("info", text, fields),
    toast: (title, message) => options.toasts && host.toast({ title, message, variant: "info" }),
  })
  const kind = hostKind(hosts, worktrees, options)
  hosts.pay = async (remote) => {
    const place = await kind.open(remote.host)
    if (remote.home === undefined) await place.putAway(remote.taskID, remote.parentFolder)
    else await place.removeLeft(remote)
  }
  return {
    hosts,
    kind,
    host: RemoteHost.over(host, hosts),
    userActions: override(userActions, {
      question: (ask) => hosts.asked(ask, (server, there) => server.question(there)) ?? userActions.question(ask),
      answer: (ask, reply) =>
        hosts.asked(ask, (server, there) => server.answer(there, reply)) ?? userActions.answer(ask, reply),
    }),
  }
}
