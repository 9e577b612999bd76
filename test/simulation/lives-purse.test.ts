import { livesTest, OTHERS } from "./many.ts"

livesTest("purse", { from: 0, to: OTHERS / 2 })
