import { livesTest, OTHERS } from "./many.ts"

livesTest("cached", { from: 2750, to: 2750 + OTHERS, deaths: ["held behind a task"] })
livesTest("hosts", { from: 250, to: 250 + OTHERS / 2, deaths: ["no contact with big", "waiting for a task"] })
