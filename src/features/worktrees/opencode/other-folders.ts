/** Where sessions work that do not work in the folder of this plugin's instance. */
export class Elsewhere {
  readonly #home: string
  readonly #folders = new Map<string, string>()
  /** The folder in which a question was asked, by its id: it has to be answered there. */
  readonly #asked = new Map<string, string>()

  constructor(home: string) {
    this.#home = home
  }

  folderOf(sessionID: string): string {
    return this.#folders.get(sessionID) ?? this.#home
  }

  /** The folders in use besides the instance's own; none where no task has a place of its own. */
  folders(): readonly string[] {
    return [...new Set(this.#folders.values())]
  }

  /** Notes where a session works now. Returns the folder that nobody works in any more by that. */
  moved(sessionID: string, folder: string): string | undefined {
    const before = this.#folders.get(sessionID)
    if (folder === this.#home) this.#folders.delete(sessionID)
    else this.#folders.set(sessionID, folder)
    if (before === undefined || before === folder || this.folders().includes(before)) return undefined
    for (const [id, where] of this.#asked) if (where === before) this.#asked.delete(id)
    return before
  }

  asked(id: string, folder: string): void {
    if (folder !== this.#home) this.#asked.set(id, folder)
  }

  /** Where a question is to be answered; undefined for the instance's own folder. */
  askedIn(id: string, sessionID: string): string | undefined {
    return this.#asked.get(id) ?? this.#folders.get(sessionID)
  }
}
