/** How the relay is started on a host where nothing of ours is installed: by a line of shell, and what it reads then. */

/**
 * The one argument that the transport gets. It has no quote of the other kind, no newline and no exclamation mark, so
 * that it survives another shell; what it runs comes over its stdin, where nothing has to be quoted.
 */
export const LINE = "exec sh -c 'IFS= read -r s; eval \"$s\"'"

/** What the host says where it has no OpenCode, instead of the marker. */
export const NOT_FOUND = "superagents: no opencode"

/** Folders in which OpenCode's own installers put it, beside those of PATH. */
const FOLDERS = [".opencode/bin", ".local/bin", ".bun/bin"]
const ELSEWHERE = ["/usr/local/bin", "/opt/homebrew/bin"]

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/** A path that a shell is to take as it is, but for the home that it may begin with. */
const inHome = (path: string): string => (path.startsWith("~/") ? `"$HOME"/${quoted(path.slice(2))}` : quoted(path))

/**
 * The two lines that the host reads first: one of shell, which finds OpenCode and starts it as the Bun that it is, and
 * one of JavaScript, the relay. What follows is the relay's own.
 */
export function opening(relay: string, settings: unknown, opencode: string): string {
  const path = [...FOLDERS.map((folder) => `$HOME/${folder}`), ...ELSEWHERE].join(":")
  const wanted = opencode === "" ? "opencode" : opencode
  const shell = [
    // A sign of life: what follows may take a busy host a while.
    "echo",
    // Wherever the command has led: that folder may be gone.
    'cd "$HOME" 2>/dev/null || cd /',
    `PATH="$PATH:${path}"`,
    "export PATH",
    "IFS= read -r j",
    `o=${inHome(wanted)}`,
    `command -v "$o" >/dev/null 2>&1 || { echo ${quoted(NOT_FOUND)} >&2; exit 127; }`,
    'o=$(command -v "$o")',
    "SUPERAGENTS_BINARY=$o; export SUPERAGENTS_BINARY",
    'BUN_BE_BUN=1 exec "$o" -e "$j"',
  ].join("; ")
  const run = `new Function("require", "module", "exports", ${JSON.stringify(relay)})`
  const script = `globalThis.SUPERAGENTS_RELAY=${JSON.stringify(settings)};${run}((n)=>process.getBuiltinModule(n),{},{})`
  return `${shell}\n${oneLineOf(script)}\n`
}

/** JSON has no raw line breaks; these two it leaves, and a shell does not mind them, but an older script parser does. */
const oneLineOf = (script: string): string => script.replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029")
