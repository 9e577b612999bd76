import { BOARD_TOOLS } from "../../runtime/launch/checks.ts"

type Rules = string | Record<string, unknown>
type Agent = { hidden?: boolean; disable?: boolean; permission?: Rules } & Record<string, unknown>
/** OpenCode's configuration of agents and permissions. */
export type AgentConfig = { permission?: Rules; agent?: Record<string, Agent | undefined> }

/** OpenCode's visible built-in agents, which a configuration names only to change them. */
const BUILT_IN = ["build", "plan", "general", "explore"]
/** OpenCode's agent whose rules deny everything they do not name. */
const DENIES_ALL = "explore"

/**
 * Offers the board's tools to its agents only, by permission rules in OpenCode's configuration. Must run before
 * OpenCode creates its agents.
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

/** Rules as a table; the short form is one word for everything. */
const asRules = (rules: Rules | undefined): Record<string, unknown> =>
  typeof rules === "string" ? { "*": rules } : { ...rules }
