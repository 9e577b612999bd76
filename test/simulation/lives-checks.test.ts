import { livesTest, OTHERS } from "./many.ts"

livesTest("checks", { from: 0, to: OTHERS })
