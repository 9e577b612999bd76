import { livesTest, PLAIN } from "./many.ts"

livesTest("plain", {
  from: 0,
  to: PLAIN,
  step: 2,
  deaths: ["queued", "waiting for a task", "parked", "waiting for permission"],
})
