import { z } from "zod"
import { type Ask, PREPARING, type Preparing } from "../../core/task.ts"
import type { Question } from "../user-actions.ts"

/** The key of what the screen is to know of a task of whose session its host tells no events: it works elsewhere. */
export const UI_METADATA_KEY = "superagentsSigns"

/** A question, with what may be answered: whoever shows it cannot ask its session. */
export type RemoteAsk = Ask & { readonly offers: Question }

export type UiMetadata = {
  /** The machine with which there is no contact. */
  readonly away?: string
  readonly preparing?: Preparing
  /** It has ended, and what it changed is being fetched. */
  readonly fetches?: true
  readonly asks: readonly RemoteAsk[]
}

const text = z.string().max(4000)
const texts = z.array(text).max(50)

const UiMetadataSchema = z.object({
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

/** What stands of it in a session's metadata, if it can be read. */
export function decodeUiMetadata(metadata: unknown): UiMetadata | undefined {
  const given = (metadata as Record<string, unknown> | null | undefined)?.[UI_METADATA_KEY]
  // Asked of every session that changes: a failed parse would cost each of them an error with its stack.
  return given === undefined ? undefined : (UiMetadataSchema.safeParse(given).data as UiMetadata | undefined)
}

/** As it is written; undefined where there is nothing to be known, or it is too much to be kept. */
export function encodeUiMetadata({ away, preparing, fetches, asks }: UiMetadata): UiMetadata | undefined {
  if (away === undefined && preparing === undefined && !fetches && asks.length === 0) return undefined
  // Without what is only for those who can ask for it.
  const plain = asks.map(({ offers, ...ask }) => ({
    ...ask,
    offers: offers.kind === "permission" ? { ...offers, diff: undefined } : offers,
  }))
  const read = UiMetadataSchema.safeParse({ away, preparing, fetches, asks: plain })
  return read.success ? (read.data as UiMetadata) : undefined
}
