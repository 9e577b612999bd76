import { livesTest, PLAIN } from "./many.ts"

livesTest("plain", { from: 0, to: PLAIN, step: 2 })
