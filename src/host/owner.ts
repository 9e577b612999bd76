import type { Owner } from "../core/ports.ts"

/** This process, as records name their owner. The start time tells it from a later process of the same number. */
export const thisProcess: Owner = Object.freeze({
  pid: process.pid,
  startedAt: Math.round(Date.now() - process.uptime() * 1000),
})
