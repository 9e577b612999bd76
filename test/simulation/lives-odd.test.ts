import { livesTest, PLAIN } from "./many.ts"

livesTest("plain", {
  from: 1,
  to: PLAIN,
  step: 2,
  deaths: ["queued", "waiting for a task", "parked", "waiting for permission"],
})
