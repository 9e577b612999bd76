import type { TuiPluginModule } from "@opencode-ai/plugin/tui"
import { groupKinds } from "../../core/feature.ts"
import { usersOptions } from "../../opencode/user-config.ts"
import { optionsOf } from "../../options/options.ts"
import { FEATURES } from "../index.ts"
import { createActions } from "./actions.ts"
import { openTasks, type TasksDialogPorts } from "./dialogs.tsx"
import { createAttention } from "./known-tasks.ts"
import { openMenu } from "./menu.tsx"
import { PARTS } from "./registry.ts"
import { hasServerHalf, serverOptions, settingsFrom } from "./settings.ts"
import { BackgroundAgents, Badge, FirstUse } from "./sidebar.tsx"
import { createSource, USED_KEY } from "./source.ts"

/** Position in the sidebar: after OpenCode's context (100) and before its todos (400). */
const SIDEBAR_ORDER = 150
const OPTIONS = optionsOf(FEATURES)
const KINDS = groupKinds(FEATURES)
const TASKS_COMMAND = "superagents.tasks"
const BOARD_COMMAND = "superagents.board"

type Command = { readonly title: string; readonly desc: string; readonly slashName: string; readonly run: () => void }

/** A command for OpenCode's command list, which is also a slash command. */
const command = (name: string, own: Command) => ({ name, category: "Session", namespace: "palette", ...own })

const plugin: TuiPluginModule = {
  id: "superagents",
  async tui(api, given, meta) {
    // OpenCode's configuration may load later than the plugin, so each use reads it again.
    const own = usersOptions()
    const settings = () => settingsFrom(given, serverOptions(OPTIONS, api.state.config, meta, own))
    const attention = createAttention(api, () => settings().osNotifications)
    const source = createSource(api, attention, () => settings().maxDepth, KINDS)
    const actions = createActions(api)
    const companion: TasksDialogPorts = { api, source, actions, settings }
    const parts = PARTS.map((part) => part({ api, actions, settings, attention }))
    api.lifecycle.onDispose(() => {
      source.dispose()
      actions.dispose()
      for (const part of parts) part.dispose?.()
    })
    api.keymap.registerLayer({
      commands: [
        command(TASKS_COMMAND, {
          title: "Background agents",
          desc: "See this session's tasks, read, answer, cancel or resume them",
          slashName: "tasks",
          run: () => void openTasks(companion),
        }),
        command(BOARD_COMMAND, {
          title: "Board",
          desc: "See the project's open tasks: start, answer, complete or cancel them, open their threads",
          slashName: "board",
          run: () => void openMenu({ api }, parts),
        }),
      ],
      bindings: [settings().keybind].flatMap((key) => (key ? [{ key, cmd: TASKS_COMMAND }] : [])),
    })
    api.slots.register({
      order: SIDEBAR_ORDER,
      slots: {
        sidebar_content(_context, props) {
          return (
            <>
              <BackgroundAgents api={api} source={source} sessionID={props.session_id} limits={settings} />
              {parts.map((part) => part.sidebar?.())}
            </>
          )
        },
        session_prompt_right(_context, props) {
          return <Badge api={api} source={source} sessionID={props.session_id} />
        },
      },
    })
    if (api.kv.get(USED_KEY, false)) return
    const offered = () => hasServerHalf(api.state.config, meta) && settings().enabled
    api.slots.register({
      order: SIDEBAR_ORDER,
      slots: {
        sidebar_content() {
          return <FirstUse api={api} source={source} offered={offered} />
        },
      },
    })
  },
}

export default plugin
