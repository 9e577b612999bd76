import { livesTest, PLAIN } from "./many.ts"

livesTest("plain", { from: 1, to: PLAIN, step: 2 })
