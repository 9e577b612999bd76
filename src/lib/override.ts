/** An object with some of its methods replaced; all else is its own, with its own private fields. */
export function override<Target extends object>(target: Target, own: Partial<Target>): Target {
  return new Proxy(target, {
    get(_target, name) {
      const mine = own[name as keyof Target]
      if (mine !== undefined) return mine
      const value = Reflect.get(target, name, target) as unknown
      return typeof value === "function" ? value.bind(target) : value
    },
  })
}
