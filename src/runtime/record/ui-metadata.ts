import { z } from "zod"
import { type Ask, PREPARING, type Preparing } from "../../core/task.ts"
import { lazy } from "../../lib/cache.ts"
import type { AskOptions } from "../user-actions.ts"

/** Metadata key for the display of a remote task, whose session sends no events here. */
export const UI_METADATA_KEY = "superagentsSigns"

/** A question with its options, stored because the terminal cannot read the remote session. */
export type RemoteAsk = Ask & { readonly offers: AskOptions }

export type UiMetadata = {
  /** Name of the host while it is out of reach. */
  readonly away?: string
  readonly preparing?: Preparing
  /** The task has ended, and its changes are being fetched. */
  readonly fetches?: true
  readonly asks: readonly RemoteAsk[]
}

const uiMetadataSchema = lazy(() => {
  const text = z.string().max(4000)
  const texts = z.array(text).max(50)
  return z.object({
    away: z.string().max(64).optional(),
    preparing: z.string().max(100).regex(PREPARING).optional(),
    fetches: z.literal(true).optional(),
    asks: z
      .array(
        z.object({
          id: text,
          sessionID: text,
          kind: z.enum(["permission", "question"]),
          what: text,
          askedAt: z.number(),
          offers: z.union([
            z.object({ kind: z.literal("permission"), permission: text, patterns: texts, always: texts }),
            z.object({
              kind: z.literal("question"),
              questions: z
                .array(
                  z.object({
                    question: text,
                    header: text,
                    options: z.array(z.object({ label: text, description: text })).max(50),
                    multiple: z.boolean(),
                    custom: z.boolean(),
                  }),
                )
                .max(20),
            }),
          ]),
        }),
      )
      .max(20),
  })
})

export function decodeUiMetadata(metadata: unknown): UiMetadata | undefined {
  const given = (metadata as Record<string, unknown> | null | undefined)?.[UI_METADATA_KEY]
  // No error is thrown here: this runs for every changed session, and each error would cost a stack trace.
  return given === undefined ? undefined : (uiMetadataSchema().safeParse(given).data as UiMetadata | undefined)
}

/** UI metadata to store; undefined where empty or too large. */
export function encodeUiMetadata({ away, preparing, fetches, asks }: UiMetadata): UiMetadata | undefined {
  if (away === undefined && preparing === undefined && !fetches && asks.length === 0) return undefined
  // The diff of a permission is not stored.
  const plain = asks.map(({ offers, ...ask }) => ({
    ...ask,
    offers: offers.kind === "permission" ? { ...offers, diff: undefined } : offers,
  }))
  const read = uiMetadataSchema().safeParse({ away, preparing, fetches, asks: plain })
  return read.success ? (read.data as UiMetadata) : undefined
}
