import { livesTest, OTHERS } from "./many.ts"

livesTest("parked", { from: 0, to: OTHERS, deaths: ["waiting for a task", "parked"] })
