/** Test hook with the name of a step at which the process is killed. */
export type Fault = (moment: string) => void
