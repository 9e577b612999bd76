import { livesTest, OTHERS } from "./many.ts"

livesTest("cached", { from: 0, to: OTHERS })
