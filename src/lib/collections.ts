/** Groups items by key, in the order of each group's first item. */
export function grouped<Item, Key>(items: readonly Item[], keyOf: (item: Item) => Key): Map<Key, [Item, ...Item[]]> {
  const groups = new Map<Key, [Item, ...Item[]]>()
  for (const item of items) {
    const key = keyOf(item)
    const group = groups.get(key)
    if (group) group.push(item)
    else groups.set(key, [item])
  }
  return groups
}

/** Returns a function that adds up the values of a row and of the rows `below` it, at all depths. */
export function totalOver<Row extends { readonly id: string; readonly parentID?: string }, Value>(
  below: readonly Row[],
  ownOf: (row: Row) => Value,
  add: (sum: Value, value: Value) => Value,
): (row: Row) => Value {
  const children = grouped(below, ({ parentID }) => parentID)
  const total = (row: Row): Value =>
    (children.get(row.id) ?? []).reduce((sum, child) => add(sum, total(child)), ownOf(row))
  return total
}

/** Adds an entry and drops the oldest above `most`. */
export function addBounded<Value>(map: Map<string, Value>, key: string, value: Value, most: number): void {
  map.delete(key)
  map.set(key, value)
  const oldest = map.size > most ? map.keys().next().value : undefined
  if (oldest !== undefined) map.delete(oldest)
}
