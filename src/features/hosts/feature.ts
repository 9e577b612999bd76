import type { AppFeature } from "../../app.ts"
import { options } from "./options.ts"

export const hosts: AppFeature = {
  name: "hosts",
  needs: ["worktrees"],
  options,
  connect: async (setup) => (setup.options.hosts ? (await import("./open.ts")).openHosts(setup) : undefined),
}
