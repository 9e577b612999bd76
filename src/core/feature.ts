import type { Specs } from "../options/spec.ts"

/** A feature: a part of the plugin that core and runtime do not know, in a folder of its own. */
export type Feature = {
  readonly name: string
  /** Features whose modules it imports: it goes when they go. */
  readonly needs?: readonly string[]
  /** Its options. It adds their types to `Options`. */
  readonly options?: Specs
}
