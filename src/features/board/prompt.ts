/** Prompt of every board run. The `<Task>` block contains all that is specific. */
export const TASK_WORK_PROMPT = `Work on the task of this thread. It stands in the <Task> block of your system prompt, as it is now.

1. Read the block: what is asked, which steps are done, what came back.
2. If there is no plan, make one with tasks_update_steps: a few steps, each with a short title.
3. Before you pass a step that has a subtask, look at that with tasks_get_task. If it is done, use what it left and mark the step with tasks_update_step. If it is still open, do not do its work yourself. If it was cancelled, do the step otherwise or give it away again.
4. Work on the next open step, and mark it when it is done. Go on with the next one as long as you can.
5. A step that another agent would do better: tasks_create_subtask. You are woken when it has ended; end your turn if you have nothing else to do.
6. Where only a person can decide or help: tasks_notify_user, say precisely what you need, and end your turn.
7. When everything is done: leave what others need to know where they look for it, in the details of a step, in the description or as a resource. Then tasks_complete_task.

Nobody reads along here. Do not ask in your answer, and do not start work that is not part of this task.`
