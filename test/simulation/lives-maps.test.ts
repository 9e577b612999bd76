import { livesTest, OTHERS } from "./many.ts"

livesTest("maps", { from: 0, to: OTHERS, deaths: ["queued", "parked", "waiting for its own tasks"] })
