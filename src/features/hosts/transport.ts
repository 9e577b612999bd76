import type { HostSettings } from "./options.ts"

/** The transport: a command that gets one more argument, a line for a shell, and runs it there. */
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
