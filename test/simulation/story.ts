/** What happened in a life, in words and in order. Kept only where somebody is going to read it. */
export class Story {
  readonly #lines: string[] = []
  readonly #now: () => number
  readonly #names = new Map<string, string>()
  readonly isTold: boolean

  constructor(now: () => number, isTold: boolean) {
    this.#now = now
    this.isTold = isTold
  }

  /** From now on this id is called so. */
  name(id: string, name: string): void {
    if (id !== "") this.#names.set(id, name)
  }

  nameOf(id: string | undefined): string {
    return (id && this.#names.get(id)) ?? id ?? "nobody"
  }

  tell(line: () => string): void {
    if (this.isTold) this.#lines.push(`${String(this.#now()).padStart(9)} ms  ${line()}`)
  }

  get text(): string {
    return this.#lines.join("\n")
  }
}
