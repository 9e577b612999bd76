import { PassThrough, Readable } from "node:stream"
import { messageOf } from "../../src/core/errors.ts"
import type { OrderResult, RunOptions } from "../../src/features/hosts/fetching.ts"
import type { FilesOrder, JobOrder } from "../../src/features/hosts/orders.ts"
import { runFilesOrder } from "../../src/features/hosts/relay/files.ts"
import { job } from "../../src/features/hosts/relay/jobs.ts"
import { processLives, processMark } from "../../src/runtime/record/identity.ts"

export const PROCESSES = { self: processMark, isAlive: processLives }

async function* nothing(): AsyncIterable<Uint8Array> {}

/** Carries out an order about files or jobs as the relay of a host does whose home is `home`. */
export async function askIn(
  home: string,
  order: FilesOrder | JobOrder,
  { input, take, signal = new AbortController().signal }: RunOptions = {},
  env: Record<string, string> = {},
): Promise<OrderResult> {
  const out: Uint8Array[] = []
  const before = { ...process.env }
  Object.assign(process.env, { HOME: home, ...env })
  const given = (input as AsyncIterable<Uint8Array> | undefined) ?? nothing()
  const call = {
    signal,
    // Read at once, as a connection does: what a program has written is lost where it ends before it is read.
    input: given instanceof Readable ? given.pipe(new PassThrough()) : given,
    async send(_kind: string, body: Uint8Array) {
      if (take) await take(body)
      else out.push(body)
    },
  }
  try {
    if (order.do === "job") out.push(Buffer.from(JSON.stringify(await job(order))))
    else await runFilesOrder(order, call, PROCESSES)
    return { out: Buffer.concat(out) }
  } catch (error) {
    return { out: Buffer.concat(out), problem: messageOf(error) }
  } finally {
    for (const name of ["HOME", ...Object.keys(env)])
      if (before[name] === undefined) delete process.env[name]
      else process.env[name] = before[name]
  }
}
