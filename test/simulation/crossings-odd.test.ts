import { crossingTests } from "./cross.ts"

crossingTests(1)
