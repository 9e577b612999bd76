import { createSignal, Show } from "solid-js"
import { count } from "../../../lib/text.ts"
import type { Act } from "../ports.ts"
import type { AgentDetail, AgentRow } from "../wire.ts"
import { api } from "./api.ts"
import { Lasting, MessageForm, suggest, textIn } from "./form.tsx"
import { runOf } from "./page-part.ts"
import { Action, Button, Failed, Failures, ThreadLink } from "./parts.tsx"
import { isolated } from "./rich-text.ts"
import { launchLink } from "./route.ts"
import { isActive } from "./select.ts"
import { state } from "./state.ts"

type Acting = {
  readonly agent: AgentRow
  readonly detail?: AgentDetail
  /** Called when an action may have changed more of the task than its row. */
  readonly changed: () => Promise<unknown>
}

export function Acts(props: Acting) {
  const [said, setSaid] = createSignal("")
  const [form, setForm] = createSignal<"tell" | "resume">()
  const toggle = (name: "tell" | "resume") => setForm(form() === name ? undefined : name)
  const running = () => isActive(props.agent)
  const act = async (name: Act) => {
    const { text } = await api.act(props.agent.id, name)
    await props.changed()
    setSaid(text)
  }
  return (
    <Failures>
      <div class="button-row">
        <Show when={!props.agent.foreign}>
          <Show when={running()} fallback={<ActsAfterEnd agent={props.agent} act={act} toggle={toggle} />}>
            {/* Nobody of a group reads messages. */}
            <Show when={props.agent.counts === undefined}>
              <Button kind="main" onClick={() => toggle("tell")}>
                Say something …
              </Button>
            </Show>
            <Show when={props.agent.stands}>
              <Action label="Go on now" run={() => act("unpark")} />
            </Show>
            <Stop
              agent={props.agent}
              label="Stop"
              text={`Stop "${isolated(props.agent.description)}"? What it has written stays readable.`}
            />
          </Show>
        </Show>
        <ThreadLink session={props.agent.sessionID} label="Open its session" />
      </div>
      <Show when={form() === "tell"}>
        <Lasting when={running()}>
          <MessageForm
            focus
            label="It reads this at its next step"
            send="Say it"
            run={async (prompt) => {
              await api.act(props.agent.id, "tell", { prompt })
              setForm()
            }}
          />
        </Lasting>
      </Show>
      <Show when={form() === "resume"}>
        <Lasting when={!running()}>
          <Resume agent={props.agent} detail={props.detail} done={() => setForm()} />
        </Lasting>
      </Show>
      <Failed />
      <div role="status">
        <Show when={said()}>{(text) => <p class="callout u-lines">{text()}</p>}</Show>
      </div>
    </Failures>
  )
}

function ActsAfterEnd(props: { agent: AgentRow; act: (name: Act) => Promise<void>; toggle: (form: "resume") => void }) {
  /** Whether the task was launched by itself. A part's run is continued by its part instead. */
  const launched = () => runOf(props.agent) === undefined
  const resumable = () => props.agent.left || state.limits?.resumable.some((status) => status === props.agent.status)
  return (
    <>
      <Show when={props.agent.merging}>
        <Stop
          agent={props.agent}
          label="Stop its merge"
          text={`Stop what is still done to merge "${isolated(props.agent.description)}"? Its work is kept, and can be merged later.`}
        />
      </Show>
      <Show when={props.agent.unmerged}>
        <Action label="Merge its changes" kind="main" run={() => props.act("merge")} />
      </Show>
      <Show when={props.agent.left}>
        <Action label="Run what is left" kind="main" run={() => props.act("resume")} />
      </Show>
      <Show when={launched() && resumable()}>
        <Button onClick={() => props.toggle("resume")}>Resume …</Button>
      </Show>
      <Show when={launched()}>
        <a class="button" href={launchLink(props.agent.id)}>
          Try again …
        </a>
      </Show>
    </>
  )
}

/** Only the confirmed run is stopped, even if the task is resumed in the meantime. */
function Stop(props: { agent: AgentRow; label: string; text: string }) {
  let [id, generation] = ["", 0]
  const asks = () => {
    ;({ id, generation } = props.agent)
    return { text: props.text, yes: "Stop it" }
  }
  return <Action label={props.label} kind="danger" asks={asks} run={() => api.cancelAgent(id, generation)} />
}

/** Form that resumes an ended task. After a merge conflict, its prompt asks the agent to solve the conflict. */
function Resume(props: { agent: AgentRow; detail?: AgentDetail; done: () => void }) {
  const conflicts = () => (props.detail?.merge?.kind === "conflict" ? props.detail.merge.files : [])
  const suggested = () =>
    conflicts().length > 0
      ? `Your worktree now has the present state of the original folder merged in. Solve the conflicts in ${conflicts().join(", ")}, keeping what both sides meant.`
      : ""
  return (
    <MessageForm
      focus
      label="It remembers its work. What shall it do now?"
      send="Resume"
      text={suggested()}
      run={async (prompt, now) => {
        const check = textIn(now, "check")
        await api.act(props.agent.id, "resume", { prompt, ...(check !== "" && { check }) })
        props.done()
      }}
    >
      <input
        class="grow u-mono"
        name="check"
        aria-label="A command that must succeed before it counts as completed"
        placeholder="check, say npm test"
        ref={(field) => suggest(field, () => props.detail?.check)}
      />
    </MessageForm>
  )
}

/** Only the confirmed runs are stopped, even if others start in the meantime. */
export function StopMany(props: { label: string; agents: () => readonly AgentRow[] }) {
  let runs: readonly Pick<AgentRow, "id" | "generation">[] = []
  const asks = () => {
    runs = props.agents().map(({ id, generation }) => ({ id, generation }))
    return { text: `Stop ${count(runs.length, "agent")}? What they have written stays readable.`, yes: "Stop them" }
  }
  return <Action label={props.label} kind="danger" asks={asks} run={() => api.stop(runs)} />
}
