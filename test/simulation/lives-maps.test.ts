import { livesTest, OTHERS } from "./many.ts"

livesTest("maps", { from: 0, to: OTHERS })
