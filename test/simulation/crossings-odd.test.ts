import { crossingTests } from "./cross.ts"

crossingTests({ calls: "odd", oneOf: 1 })
