/** Folders of sessions outside this instance's folder. */
export class SessionFolders {
  readonly #home: string
  readonly #folders = new Map<string, string>()
  /** Folders by question id: OpenCode accepts an answer only there. */
  readonly #asked = new Map<string, string>()

  constructor(home: string) {
    this.#home = home
  }

  folderOf(sessionID: string): string {
    return this.#folders.get(sessionID) ?? this.#home
  }

  /** Other folders in use; empty where no task has a place of its own. */
  folders(): readonly string[] {
    return [...new Set(this.#folders.values())]
  }

  /** Records a session's folder. Returns a folder that no session uses any more. */
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

  /** Folder in which to answer a question; undefined for the instance's own. */
  askedIn(id: string, sessionID: string): string | undefined {
    return this.#asked.get(id) ?? this.#folders.get(sessionID)
  }
}
