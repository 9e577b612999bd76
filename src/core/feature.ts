/** A feature: a part of the plugin that core and runtime do not know, in a folder of its own. */
export type Feature = {
  readonly name: string
  /** Features whose modules it imports: it goes when they go. */
  readonly needs?: readonly string[]
}
