import { processLives, processMark } from "../../../runtime/record/owner.ts"
import type { RelaySettings } from "../orders.ts"
import { serve } from "./serve.ts"

/**
 * The far end of a host: a file of its own, sent over the connection and run in the Bun that OpenCode is there. Nothing of
 * it stays when the connection ends.
 */
const { SUPERAGENTS_RELAY: settings } = globalThis as unknown as { SUPERAGENTS_RELAY: RelaySettings }
// A child that inherited it would be a Bun, too.
delete process.env.BUN_BE_BUN
const processes = { self: processMark, isAlive: processLives }
void serve({ input: process.stdin, output: process.stdout }, settings, processes).then(() => process.exit(0))
