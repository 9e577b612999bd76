import { crossingTests } from "./cross.ts"

crossingTests({ calls: "even", oneOf: 1 })
