import { readFileSync } from "node:fs"

/** The kernel counts a process's CPU time in hundredths of a second. */
const TICK_MS = 10

/** CPU time that a process has used, all threads, in ms. */
export const cpuMs = (pid: number): number => {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
  // The process's name stands in brackets and may hold anything; utime and stime are the 12th and 13th field after it.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS
}

/** "VmRSS": what a process has in memory now; "VmHWM": the most that it has had. In MB. */
export const memoryMB = (pid: number, which: "VmRSS" | "VmHWM"): number => {
  const status = readFileSync(`/proc/${pid}/status`, "utf8")
  return Number(new RegExp(`^${which}:\\s+(\\d+) kB`, "m").exec(status)?.[1] ?? Number.NaN) / 1024
}
