import { Show, untrack } from "solid-js"
import type { TaskRow } from "../../board/wire.ts"
import { Field, Form, Picker, textIn } from "../form.tsx"
import { taskLink } from "../route.ts"
import { state } from "../state.ts"
import { boardApi } from "./api.ts"

type Fields = Pick<TaskRow, "title" | "owner" | "description">

const fieldsIn = (data: FormData): Fields => ({
  title: textIn(data, "title"),
  owner: textIn(data, "owner"),
  description: textIn(data, "description"),
})

/** Creates or edits a task. Input survives outside changes, and only edited fields are saved. */
export function TaskForm(props: { task?: TaskRow; onDone?: () => void }) {
  const before = untrack(() => ({ title: "", owner: "", description: "", ...props.task }))
  const owners = () => {
    const names = state.owners.map((owner) => owner.name)
    const all = before.owner !== "" && !names.includes(before.owner) ? [before.owner, ...names] : names
    return all.map((name) => [name, name] as const)
  }
  const keep = () => props.onDone?.()
  const send = async (now: FormData, first: FormData) => {
    if (!props.task) return create(now)
    await save(props.task.id, fieldsIn(now), fieldsIn(first))
    return keep
  }
  return (
    <Form
      label={props.task ? "Save" : "Create"}
      send={send}
      buttons={
        <Show when={props.task}>
          <button type="button" class="button" onClick={keep}>
            Keep it
          </button>
        </Show>
      }
    >
      <Show when={!props.task}>
        <h2>New task</h2>
      </Show>
      <Field label="Title">
        {(id) => (
          <input
            id={id}
            name="title"
            required
            autocomplete="off"
            value={before.title}
            ref={(element) => queueMicrotask(() => element.focus())}
          />
        )}
      </Field>
      <Field label="Owner">
        {(id) => <Picker id={id} name="owner" required value={before.owner} options={owners()} />}
      </Field>
      <Field label="What is to be done" hint="Markdown">
        {(id) => <textarea id={id} name="description" rows="6" value={before.description} />}
      </Field>
      <Show when={!props.task}>
        <Beginning />
      </Show>
    </Form>
  )
}

/** Fields of a new task only. */
function Beginning() {
  return (
    <>
      <Field label="Steps" hint="one a line; its owner makes them if you do not">
        {(id) => <textarea id={id} name="steps" rows="4" />}
      </Field>
      <label class="option">
        <input type="checkbox" name="draft" /> Only a draft: nobody works on it yet
      </label>
    </>
  )
}

/** Browsers normalize blanks and line ends, which is no change. */
async function save(id: string, now: Fields, first: Fields): Promise<void> {
  const changed = Object.entries(now).filter(([field, value]) => value !== first[field as keyof Fields])
  if (changed.length > 0) await boardApi.update(id, Object.fromEntries(changed))
}

async function create(now: FormData): Promise<() => void> {
  const steps = textIn(now, "steps")
    .split("\n")
    .flatMap((line) => (line.trim() === "" ? [] : { title: line.trim() }))
  const made = await boardApi.create({ ...fieldsIn(now), steps, status: now.has("draft") ? "draft" : "active" })
  return () => {
    location.hash = taskLink(made.id)
  }
}
