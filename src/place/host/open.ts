import type { Clock, Host } from "../../core/ports.ts"
import type { Connection } from "../../host/connection.ts"
import type { OpenFar } from "../../host/far.ts"
import type { Hand } from "../../host/person.ts"
import { overlaid } from "../../lib/overlaid.ts"
import type { Options } from "../../options.ts"
import type { Place, PlaceKind } from "../place.ts"
import { DEBTS } from "../root.ts"
import { debtsIn } from "./debts.ts"
import { FarHost } from "./far-host.ts"
import { Hosts } from "./hosts.ts"
import { hostKind } from "./kind.ts"

export type HostsRequest = {
  readonly options: Options
  readonly host: Host
  readonly hand: Hand
  readonly sign: Connection["sign"]
  readonly openFar: OpenFar
  readonly clock: Clock
  readonly instance: string
  readonly machine: string
  /** The folder that this instance serves. */
  readonly folder: string
  readonly worktrees: () => Promise<Place>
}

/** Other machines: as places, and as what the host and a person's hand are where tasks work there. */
export type OpenHosts = { readonly hosts: Hosts; readonly kind: PlaceKind; readonly host: Host; readonly hand: Hand }

export function openHosts({ options, host, hand, worktrees, folder, ...ports }: HostsRequest): OpenHosts {
  const hosts: Hosts = new Hosts({
    ...ports,
    debts: debtsIn(DEBTS, folder),
    settings: options.hosts ?? {},
    log: (text, fields) => host.log("info", text, fields),
    toast: (title, message) => options.toasts && host.toast({ title, message, variant: "info" }),
  })
  const kind = hostKind(hosts, worktrees, options)
  hosts.pay = async (stub) => {
    const place = await kind.open(stub.host)
    if (stub.home === undefined) await place.putAway(stub.taskID, stub.parentFolder)
    else await place.removeLeft(stub)
  }
  return {
    hosts,
    kind,
    host: FarHost.over(host, hosts),
    hand: overlaid(hand, {
      question: (ask) => hosts.asked(ask, (server, there) => server.question(there)) ?? hand.question(ask),
      answer: (ask, reply) =>
        hosts.asked(ask, (server, there) => server.answer(there, reply)) ?? hand.answer(ask, reply),
    }),
  }
}
