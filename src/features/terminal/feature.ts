import { z } from "zod"
import type { Feature } from "../../core/feature.ts"
import { option, projectWins, type ValuesOf } from "../../options/spec.ts"

const options = {
  osNotifications: option(
    () => z.boolean(),
    false,
    "A desktop notification when an agent ends, asks or needs you while the terminal is in the background; the sound is OpenCode's own.",
    projectWins,
  ),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

export const terminal: Feature = { name: "terminal", options }
