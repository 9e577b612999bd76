import { crossingTests } from "./cross.ts"

crossingTests({ calls: "each", oneOf: 16 })
