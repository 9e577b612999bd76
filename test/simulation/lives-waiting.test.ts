import { livesTest, OTHERS } from "./many.ts"

livesTest("cached", { from: 0, to: OTHERS, deaths: ["held behind a task"] })
livesTest("hosts", { from: 0, to: OTHERS / 2, deaths: ["no contact with big", "waiting for a task"] })
