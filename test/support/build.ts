import { execFileSync } from "node:child_process"

/** Builds the plugin once, before any end-to-end test loads it: what is tested is what is shipped. */
export default function setup() {
  execFileSync("npm", ["run", "--silent", "build"], { stdio: "inherit" })
}
