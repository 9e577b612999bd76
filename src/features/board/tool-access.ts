import { BOARD_TOOLS } from "../../runtime/launch/checks.ts"

type Rules = string | Record<string, unknown>
type Agent = { hidden?: boolean; disable?: boolean; permission?: Rules } & Record<string, unknown>
/** The part of the host's configuration that says what agents may do. */
export type AgentConfig = { permission?: Rules; agent?: Record<string, Agent | undefined> }

/** The host's own agents that a user sees; the configuration names them only where it changes them. */
const BUILT_IN = ["build", "plan", "general", "explore"]
/** Of these, the one whose own rules deny all that they do not name. */
const DENIES_ALL = "explore"

/**
 * Sees to it that the board's tools are offered to its agents alone: the others are denied them, and those that deny
 * everything else are allowed them. Changes the configuration before the host makes its agents of it.
 */
export function restrictTools(config: AgentConfig, allowed: readonly string[] | null): void {
  config.agent ??= {}
  const agents = config.agent
  for (const name of new Set([...BUILT_IN, ...Object.keys(agents)])) {
    const agent = agents[name]
    const isAllowed = !agent?.hidden && (allowed === null || allowed.includes(name))
    const rules = asRules(agent?.permission)
    if (!isAllowed) {
      const { [BOARD_TOOLS]: _ours, ...others } = rules
      agents[name] = { ...agent, permission: { ...others, [BOARD_TOOLS]: "deny" } }
    } else if (name === DENIES_ALL || rules["*"] === "deny" || asRules(config.permission)["*"] === "deny") {
      const { "*": all, ...others } = rules
      agents[name] = {
        ...agent,
        permission: { ...(all !== undefined && { "*": all }), [BOARD_TOOLS]: "allow", ...others },
      }
    }
  }
}

/** Rules as a table: in short they are one word for everything. */
const asRules = (rules: Rules | undefined): Record<string, unknown> =>
  typeof rules === "string" ? { "*": rules } : { ...rules }
