/** Told the name of each step that may be the last one: tests end the process there. */
export type Fault = (moment: string) => void
