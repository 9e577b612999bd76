import type { Delta } from "./wire.ts"

type Empty = { readonly [Name in keyof Delta]?: string }

/** Values beside the rows as last sent to the page's readers, serialized. */
export class SentFacts {
  readonly #facts: Map<string, string>
  readonly #empty: Empty

  /** `empty`: serialized empty values, which the first event leaves out. */
  constructor(empty: Empty = {}) {
    this.#empty = empty
    this.#facts = new Map(Object.entries(empty))
  }

  /** The value if it differs from the last one that was sent. The value then counts as sent. */
  changed<Name extends keyof Delta>(name: Name, value: Delta[Name]): Partial<Delta> {
    const text = JSON.stringify(value)
    if (text === this.#facts.get(name)) return {}
    this.#facts.set(name, text)
    return { [name]: value }
  }

  /** The value as it was sent last; undefined for an empty value. */
  text(name: keyof Delta): string | undefined {
    const text = this.#facts.get(name)
    return text === this.#empty[name] ? undefined : text
  }

  delete(name: keyof Delta): void {
    this.#facts.delete(name)
  }
}

/** Rows that differ from the rows that were sent last. They then count as sent. */
export function renew<Row extends { readonly id: string }>(
  known: Map<string, string>,
  rows: readonly Row[],
): readonly Row[] {
  return rows.filter((row) => {
    const text = JSON.stringify(row)
    if (known.get(row.id) === text) return false
    known.set(row.id, text)
    return true
  })
}

export function forget(known: Map<string, string>, ids: readonly string[]): readonly string[] {
  for (const id of ids) known.delete(id)
  return ids
}

export const some = <Key extends string, Value>(key: Key, values: readonly Value[]) =>
  (values.length > 0 ? { [key]: values } : {}) as { [key in Key]?: readonly Value[] }

export const list = (known: ReadonlyMap<string, string>): string => `[${[...known.values()].join(",")}]`

/** JSON text of an object whose values are serialized already. Undefined values are left out. */
export const object = (values: Readonly<Record<string, string | undefined>>): string =>
  `{${Object.entries(values)
    .flatMap(([key, text]) => (text === undefined ? [] : `${JSON.stringify(key)}:${text}`))
    .join(",")}}`
