import type { Owner } from "../../src/core/ports.ts"
import { signerOf } from "../../src/runtime/record/identity.ts"

/** The key of the installation that the tests play. */
export const SIGNER = signerOf(new Uint8Array(32).fill(7))

export const ownerOf = (instance = "i", seenAt = 1): Owner => ({
  pid: 1,
  machine: "m",
  boot: "b",
  namespace: "n",
  started: "1",
  instance,
  seenAt,
})
