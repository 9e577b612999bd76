import { livesTests } from "./many.ts"

livesTests(1)
