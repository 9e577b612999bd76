import { createSignal, createUniqueId, For, Show, untrack } from "solid-js"
import type { TaskRow } from "../wire.ts"
import { api } from "./api.ts"
import { keepFocus, Problem } from "./parts.tsx"
import { askBeforeLeaving } from "./place.ts"
import { taskLink } from "./route.ts"
import { state } from "./state.ts"

type Fields = Pick<TaskRow, "title" | "owner" | "description">

const textIn = (form: HTMLFormElement, field: string): string => String(new FormData(form).get(field) ?? "").trim()

const fieldsOf = (form: HTMLFormElement): Fields => ({
  title: textIn(form, "title"),
  owner: textIn(form, "owner"),
  description: textIn(form, "description"),
})

/**
 * Creates a task, or changes the one that is given. What is being typed stays when the task changes elsewhere meanwhile;
 * saved is what was changed here, and that alone.
 */
export function TaskForm(props: { task?: TaskRow; onDone?: () => void }) {
  const before = untrack(() => ({
    title: props.task?.title ?? "",
    owner: props.task?.owner ?? "",
    description: props.task?.description ?? "",
  }))
  const [problem, setProblem] = createSignal("")
  const [busy, setBusy] = createSignal(false)
  const id = createUniqueId()
  const name = (field: string) => `${id}-${field}`
  const owners = () => {
    const names = state.owners.map((owner) => owner.name)
    return before.owner !== "" && !names.includes(before.owner) ? [before.owner, ...names] : names
  }

  /** What the form said at first: a text in it may differ from the task's in blanks and line ends. */
  let shown: Partial<Fields> = {}
  let untouched = () => true
  askBeforeLeaving(() => !untouched())
  let form: HTMLFormElement | undefined
  keepFocus(() => form)

  const save = async (form: HTMLFormElement) => {
    const fields = fieldsOf(form)
    if (props.task) {
      const changed = Object.entries(fields).filter(([field, value]) => value !== shown[field as keyof Fields])
      if (changed.length > 0) await api.update(props.task.id, Object.fromEntries(changed))
      props.onDone?.()
      return
    }
    const steps = textIn(form, "steps")
      .split("\n")
      .flatMap((line) => (line.trim() === "" ? [] : { title: line.trim() }))
    const made = await api.create({ ...fields, steps, status: textIn(form, "draft") ? "draft" : "active" })
    untouched = () => true
    location.hash = taskLink(made.id)
  }

  const submit = async (event: SubmitEvent) => {
    event.preventDefault()
    if (busy()) return
    setBusy(true)
    setProblem("")
    await save(event.currentTarget as HTMLFormElement).catch((error: Error) => setProblem(error.message))
    setBusy(false)
  }

  return (
    <form
      class="form"
      ref={(element) => {
        form = element
        queueMicrotask(() => {
          shown = fieldsOf(element)
          const all = () => JSON.stringify([...new FormData(element)])
          const first = all()
          untouched = () => all() === first
        })
      }}
      onSubmit={(event) => void submit(event)}
    >
      <Show when={!props.task}>
        <h2>New task</h2>
      </Show>
      <label for={name("title")}>Title</label>
      <input
        id={name("title")}
        name="title"
        required
        autocomplete="off"
        value={before.title}
        ref={(element) => queueMicrotask(() => element.focus())}
      />
      <label for={name("owner")}>Owner</label>
      <select id={name("owner")} name="owner" required>
        <For each={owners()}>
          {(owner) => (
            <option value={owner} selected={owner === before.owner}>
              {owner}
            </option>
          )}
        </For>
      </select>
      <label for={name("description")}>
        What is to be done <span class="u-quiet">Markdown</span>
      </label>
      <textarea id={name("description")} name="description" rows="6" value={before.description} />
      <Show when={!props.task}>
        <label for={name("steps")}>
          Steps <span class="u-quiet">one a line; its owner makes them if you do not</span>
        </label>
        <textarea id={name("steps")} name="steps" rows="4" />
        <label class="option">
          <input type="checkbox" name="draft" /> Only a draft: nobody works on it yet
        </label>
      </Show>
      <Problem text={problem()} />
      <div class="button-row">
        <button type="submit" class="button" data-kind="main" aria-busy={busy()}>
          {props.task ? "Save" : "Create"}
        </button>
        <Show when={props.task}>
          <button type="button" class="button" onClick={() => props.onDone?.()}>
            Keep it
          </button>
        </Show>
      </div>
    </form>
  )
}
