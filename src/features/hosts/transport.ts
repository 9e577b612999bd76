import type { HostSettings } from "./options.ts"

/** The transport: a command that runs the shell line in its last argument on the host. */
export const commandOf = ({ ssh, command }: Pick<HostSettings, "ssh" | "command">): readonly string[] =>
  command ?? [
    "ssh",
    "-T",
    ...["BatchMode=yes", "ConnectTimeout=8", "ServerAliveInterval=5", "ServerAliveCountMax=2"].flatMap((option) => [
      "-o",
      option,
    ]),
    ssh ?? "",
  ]
