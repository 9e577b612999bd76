import { processLives, processMark } from "../../../runtime/record/identity.ts"
import type { RelaySettings } from "../orders.ts"
import { serve } from "./serve.ts"

/**
 * Entry of the relay: this code is sent over the connection and run by the Bun inside OpenCode. Nothing of the code
 * stays on the host afterwards.
 */
const { SUPERAGENTS_RELAY: settings } = globalThis as unknown as { SUPERAGENTS_RELAY: RelaySettings }
// Remove the variable: an OpenCode that the relay starts would run as Bun.
delete process.env.BUN_BE_BUN
const processes = { self: processMark, isAlive: processLives }
void serve({ input: process.stdin, output: process.stdout }, settings, processes).then(() => process.exit(0))
