#!/usr/bin/env node
/**
 * Installs the development dependencies where they are missing, so that `npm run demo` and `npm test` work in a fresh
 * clone. Plain JavaScript: it runs before anything is installed.
 */
import { spawnSync } from "node:child_process"
import { existsSync, realpathSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..")
const NEEDED = ["opencode-ai/bin", "@opencode-ai/sdk", "tsdown", "tsx", "vitest", "zod"]
const OLDEST_NODE = [20, 19]
const QUIET = ["--no-audit", "--no-fund", "--loglevel=error"]

/** Says why on the error output and ends the process with exit code 1. */
export function fail(reason) {
  console.error(reason)
  process.exit(1)
}

/** Runs npm. `show`: its output goes to the terminal; otherwise it is returned. */
export function npm(args, { show = false } = {}) {
  const stdio = show ? ["ignore", "inherit", "inherit"] : ["ignore", "pipe", "pipe"]
  const { status, signal, error, stdout, stderr } = spawnSync("npm", args, { cwd: ROOT, stdio, encoding: "utf8" })
  if (error) fail(`npm could not be started: ${error.message}`)
  // Ctrl-C reaches npm as well.
  if (signal) process.exit(130)
  return { ok: status === 0, output: [stdout, stderr].filter(Boolean).join("\n").trim() }
}

export function install() {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)
  if (major < OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor < OLDEST_NODE[1]))
    fail(`Node ${OLDEST_NODE.join(".")} or newer is needed; this is ${process.versions.node}.`)
  if (NEEDED.every((name) => existsSync(join(ROOT, "node_modules", name)))) return
  console.log("Installing the development dependencies, OpenCode among them. This happens once and may take a minute.")
  if (npm(["ci", ...QUIET], { show: true }).ok) return
  fail("The installation failed; npm says why above.")
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) install()
