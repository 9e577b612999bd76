/** Starts the relay on a host without an installation: a shell line, and a script that it reads. */

/**
 * Only argument of the transport. It contains no double quotes, newlines or exclamation marks, so that it survives a
 * second shell; everything else comes over stdin, unquoted.
 */
export const LINE = "exec sh -c 'IFS= read -r s; eval \"$s\"'"

/** Printed in place of the marker where the host has no OpenCode. */
export const NOT_FOUND = "superagents: no opencode"

/** Folders of OpenCode's installers, searched after PATH. */
const FOLDERS = [".opencode/bin", ".local/bin", ".bun/bin"]
const ELSEWHERE = ["/usr/local/bin", "/opt/homebrew/bin"]

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/** Quotes a path for the shell, except for a leading `~/`. */
const inHome = (path: string): string => (path.startsWith("~/") ? `"$HOME"/${quoted(path.slice(2))}` : quoted(path))

/**
 * First two lines for the host: a shell script that finds OpenCode and starts it as Bun, and the relay's JavaScript.
 * All later bytes belong to the relay.
 */
export function bootstrapLines(relay: string, settings: unknown, opencode: string): string {
  const path = [...FOLDERS.map((folder) => `$HOME/${folder}`), ...ELSEWHERE].join(":")
  const wanted = opencode === "" ? "opencode" : opencode
  const shell = [
    // A sign of life: the next steps may take long on a busy host.
    "echo",
    // The login folder may be gone.
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

/** JSON allows U+2028 and U+2029 unescaped, which old script parsers reject. */
const oneLineOf = (script: string): string => script.replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029")
