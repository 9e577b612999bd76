import { processLives, processMark } from "../../../runtime/record/identity.ts"
import type { RelaySettings } from "../orders.ts"
import { serve } from "./serve.ts"

/** Relay: sent over the connection and run by the Bun within OpenCode. Nothing of it stays on the host afterwards. */
const { SUPERAGENTS_RELAY: settings } = globalThis as unknown as { SUPERAGENTS_RELAY: RelaySettings }
// A child OpenCode with this variable would run as Bun.
delete process.env.BUN_BE_BUN
const processes = { self: processMark, isAlive: processLives }
void serve({ input: process.stdin, output: process.stdout }, settings, processes).then(() => process.exit(0))
